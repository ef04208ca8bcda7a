/* server.h: the demo's own tidepoold: started in a fresh folder, reached by its socket, ended by
 * its process id. Thread: one. */
#ifndef TIDEPOOL_DEMO_SERVER_H
#define TIDEPOOL_DEMO_SERVER_H

#include <sys/types.h>

#include "clients/common/control.h"

struct demo_server {
    char folder[512];    /* absolute; models/, state/ and tidepoold.log are in it */
    char inference[256]; /* address of the inference service */
    char socket[600];    /* "unix:…": of the control API */
    pid_t pid;           /* 0: not running */
    int lock;            /* so that two demos do not share the folder */
    struct grpc_client *client;
};

/* Cleans the folder, starts BUILD/tidepoold with the configuration and waits until it is ready. */
int demo_server_start(struct demo_server *server, const char *build, const char *config,
                      struct error *error);
/* SIGTERM, then SIGKILL when it has not ended after 20 s. Safe at any time. */
void demo_server_stop(struct demo_server *server);
/* Nothing, or an error when the process has ended by itself. */
int demo_server_check(struct demo_server *server, struct error *error);

#endif

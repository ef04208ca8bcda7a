/* spawner_internal.h: what the server and its spawner say to each other. Both are one program: each
 * packet is one of these structs as it is. */
#ifndef TIDEPOOL_SHIM_SPAWNER_INTERNAL_H
#define TIDEPOOL_SHIM_SPAWNER_INTERNAL_H

#include <limits.h>

#include "server/shim/packet.h"
#include "server/shim/spawner.h"

/* The files that come with SPAWN_START; the last one may be missing. */
enum { SPAWN_JOB, SPAWN_CONNECTION, SPAWN_INPUT, SPAWN_FILES };

struct spawner_request {
    enum { SPAWN_START, SPAWN_END, SPAWN_WAKE } kind;
    char directory[PATH_MAX]; /* of END and WAKE; START has it in the job */
};

struct spawner_answer {
    enum error_code code;
    enum remains remains;
    char text[sizeof((struct error *)0)->text];
};

struct spawner_place {
    char program[PATH_MAX], directory[PATH_MAX];
    uid_t owner;
};

/* The process itself: serves `socket` until its other end is gone. */
_Noreturn void spawner_run(const struct spawner_place *place, int socket);

#endif

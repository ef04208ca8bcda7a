/* exit_code.h: how every client program ends. `tidepool help` prints the meanings. */
#ifndef TIDEPOOL_CLIENTS_EXIT_CODE_H
#define TIDEPOOL_CLIENTS_EXIT_CODE_H

#include "server/base/error.h"

enum exit_code {
    EXIT_OK = 0,
    EXIT_FAILED = 1,      /* what was asked for ran and failed: the job, requests of a load */
    EXIT_USAGE = 2,       /* the command line is wrong */
    EXIT_PREEMPTED = 121, /* the job was preempted and will not go on by itself */
    EXIT_REFUSED = 122,   /* the server refused the request */
    EXIT_CONNECT = 123,   /* no server could be reached, or it went away */
    EXIT_TIMEOUT = 124,
    EXIT_OTHER = 125,  /* another failure of Tidepool */
    EXIT_SIGNAL = 128, /* + the signal's number: 130 after Ctrl-C */
};

enum exit_code exit_code_of(const struct error *error);

#endif

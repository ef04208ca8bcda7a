/* control_command.h: an outside job's command on the wire, as a specification and back. */
#ifndef TIDEPOOL_RPC_CONTROL_COMMAND_H
#define TIDEPOOL_RPC_CONTROL_COMMAND_H

#include "server/base/error.h"
#include "server/control/view.h"
#include "server/rpc/scratch.h"
#include "tidepool/v1/control.pb-c.h"

/* The specification, malloc'ed; NULL: a text is not UTF-8, or no memory. Values are checked by
 * whoever reads it. */
char *command_specification(const Tidepool__V1__Command *command, struct error *error);
/* Without its environment. */
Tidepool__V1__Command *encode_command(struct scratch *scratch, const struct command *command);

#endif

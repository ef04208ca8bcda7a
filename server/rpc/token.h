/* token.h: the secret that lets a TCP client change things.
 * File:    one line of 16 to 256 printable characters without spaces; nobody but its owner may
 *          read it.
 * Thread:  plain values; the comparison takes the same time wherever the texts differ. */
#ifndef TIDEPOOL_RPC_TOKEN_H
#define TIDEPOOL_RPC_TOKEN_H

#include <stdbool.h>

#include "server/base/error.h"

#define TOKEN_SIZE 257

int token_read(const char *path, char ret_token[TOKEN_SIZE], struct error *error);
/* Whether an `authorization` header's value is "Bearer <token>". An empty token matches nothing. */
bool token_matches(const char token[TOKEN_SIZE], const char *authorization);

#endif

/* packet.h: packets on a local socket (SOCK_SEQPACKET), and descriptors with them.
 * Errors:  negative errno.
 * Thread:  any; blocks. */
#ifndef TIDEPOOL_SHIM_PACKET_H
#define TIDEPOOL_SHIM_PACKET_H

#include <stddef.h>
#include <sys/types.h>

#define PACKET_FILES_MAX 3

/* `files` stay the caller's. */
int packet_send(int socket, const void *bytes, size_t length, const int *files, size_t count);
/* The length; 0: the other end is gone. The files that came are the caller's, close-on-exec. */
ssize_t packet_receive(int socket, void *bytes, size_t room, int files[PACKET_FILES_MAX],
                       size_t *ret_count);

#endif

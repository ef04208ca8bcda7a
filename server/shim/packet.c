#include "server/shim/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

union control {
    struct cmsghdr head;
    char space[CMSG_SPACE(PACKET_FILES_MAX * sizeof(int))];
};

int packet_send(int socket, const void *bytes, size_t length, const int *files, size_t count)
{
    struct iovec piece = {(void *)bytes, length};
    union control control = {0};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    ssize_t sent;
    if (count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&control.head), files, count * sizeof(int));
    }
    do {
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)length ? 0 : sent < 0 ? -errno : -EMSGSIZE;
}

ssize_t packet_receive(int socket, void *bytes, size_t room, int files[PACKET_FILES_MAX],
                       size_t *ret_count)
{
    struct iovec piece = {bytes, room};
    union control control;
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t length;
    struct cmsghdr *head;
    do {
        length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (length < 0 && errno == EINTR);
    *ret_count = 0;
    head = length > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (head != NULL && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        size_t size = head->cmsg_len - CMSG_LEN(0);
        memcpy(files, CMSG_DATA(head), size);
        *ret_count = size / sizeof(int);
    }
    return length < 0 ? -errno : length;
}

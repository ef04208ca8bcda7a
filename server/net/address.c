#include "server/net/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024
#define HOST_BYTES_MAX 256
#define UNIX_PREFIX "unix:"
#define SOCKET_FLAGS (SOCK_NONBLOCK | SOCK_CLOEXEC)

static void descriptor_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

/* getaddrinfo takes 99999 for 34463: what was meant is not for us to guess. */
static bool port_is_valid(const char *port)
{
    size_t digits = strspn(port, "0123456789");
    return digits > 0 && digits <= 5 && port[digits] == '\0' && atoi(port) <= UINT16_MAX;
}

/* Splits "host:port" or "[host]:port" at the last colon. */
static int address_split(const char *address, char host[HOST_BYTES_MAX], const char **ret_port,
                         struct error *error)
{
    const char *colon = strrchr(address, ':');
    const char *start = address;
    const char *end = colon;
    if (colon != NULL && address[0] == '[' && colon > address && colon[-1] == ']') {
        start = address + 1;
        end = colon - 1;
    }
    bool bare_colon = end != NULL && start == address && memchr(start, ':', (size_t)(end - start));
    if (colon == NULL || end == start || end - start >= HOST_BYTES_MAX || bare_colon ||
        !port_is_valid(colon + 1)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "listen on '%s': not host:port, [host]:port or unix:/path with a port of "
                         "0 to 65535",
                         address);
    }
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    *ret_port = colon + 1;
    return 0;
}

static int listen_error(const char *address, int number, struct error *error)
{
    if (number == EADDRINUSE) {
        return error_set(error, ERROR_UNAVAILABLE,
                         "listen on '%s': the address is in use; stop the process that holds it "
                         "(`ss -ltnp` shows it) or choose another port (0: the kernel chooses)",
                         address);
    }
    if (number == EACCES) {
        return error_set(error, ERROR_PERMISSION_DENIED,
                         "listen on '%s': not allowed; choose a port above 1023 or a directory "
                         "that this user may write",
                         address);
    }
    return error_set_errno(error, number, "listen on '%s'", address);
}

static uint16_t socket_port(int fd)
{
    struct sockaddr_storage bound = {0};
    socklen_t length = sizeof bound;
    if (getsockname(fd, (struct sockaddr *)&bound, &length) < 0) {
        return 0;
    }
    if (bound.ss_family == AF_INET6) {
        return ntohs(((struct sockaddr_in6 *)(void *)&bound)->sin6_port);
    }
    return ntohs(((struct sockaddr_in *)(void *)&bound)->sin_port);
}

/* One resolved address, bound and listening; -1 with errno. */
static int listen_tcp_one(const struct addrinfo *info)
{
    const int on = 1;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCKET_FLAGS, 0);
    if (fd < 0) {
        return -1;
    }
    /* Reuse is about old connections in TIME_WAIT: two listeners on one port stay impossible. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        (info->ai_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) < 0) ||
        bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
        int number = errno;
        close(fd);
        errno = number;
        return -1;
    }
    return fd;
}

static int listen_tcp(const char *address, struct listening *listening, struct error *error)
{
    char host[HOST_BYTES_MAX];
    const char *port = NULL;
    int result = address_split(address, host, &port, error);
    if (result < 0) {
        return result;
    }
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int failure = getaddrinfo(host, port, &hints, &found);
    if (failure != 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "listen on '%s': %s; use a numeric address "
                         "and a port of 0 to 65535",
                         address, gai_strerror(failure));
    }
    listening->fd = listen_tcp_one(found);
    int number = errno;
    freeaddrinfo(found);
    if (listening->fd < 0) {
        return listen_error(address, number, error);
    }
    listening->port = socket_port(listening->fd);
    return 0;
}

/* True when the path is a socket that refuses connections: left over by a dead process. */
static bool unix_is_stale(const struct sockaddr_un *name)
{
    struct stat status;
    if (lstat(name->sun_path, &status) < 0 || !S_ISSOCK(status.st_mode)) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCKET_FLAGS, 0);
    bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)name, sizeof *name) < 0 &&
                 errno == ECONNREFUSED;
    descriptor_close(fd);
    return stale;
}

static int unix_bind(int fd, const struct sockaddr_un *name)
{
    /* The file takes the socket's mode, so that it is never open to others, not even briefly. */
    if (fchmod(fd, 0600) < 0) {
        return -1;
    }
    if (bind(fd, (const struct sockaddr *)name, sizeof *name) == 0) {
        return 0;
    }
    if (errno != EADDRINUSE) {
        return -1;
    }
    if (!unix_is_stale(name)) {
        errno = EADDRINUSE;
        return -1;
    }
    unlink(name->sun_path);
    return bind(fd, (const struct sockaddr *)name, sizeof *name);
}

static int listen_unix(const char *address, struct listening *listening, struct error *error)
{
    const char *path = address + strlen(UNIX_PREFIX);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (path[0] == '\0' || strlen(path) >= sizeof name.sun_path) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "listen on '%s': the path must have 1 to %zu bytes", address,
                         sizeof name.sun_path - 1);
    }
    memcpy(name.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCKET_FLAGS, 0);
    if (fd < 0 || unix_bind(fd, &name) < 0 || listen(fd, BACKLOG) < 0) {
        int number = errno;
        descriptor_close(fd);
        return listen_error(address, number, error);
    }
    listening->fd = fd;
    return 0;
}

int address_listen(const char *address, struct listening *ret_listening, struct error *error)
{
    bool local = strncmp(address, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0;
    struct listening listening = {.fd = -1, .local = local};
    int result =
        local ? listen_unix(address, &listening, error) : listen_tcp(address, &listening, error);
    if (result == 0) {
        *ret_listening = listening;
    }
    return result;
}

void address_close(struct listening *listening)
{
    if (listening->fd < 0) {
        return;
    }
    struct sockaddr_un name = {0};
    socklen_t length = sizeof name;
    if (listening->local && getsockname(listening->fd, (struct sockaddr *)&name, &length) == 0 &&
        name.sun_path[0] != '\0') {
        unlink(name.sun_path);
    }
    close(listening->fd);
    listening->fd = -1;
}

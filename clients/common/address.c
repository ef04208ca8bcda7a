#include "clients/common/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_SYSTEM "/run/tidepool/tidepool.sock"

static int address_resolve_unix(const char *path, struct address *address, struct error *error)
{
    struct sockaddr_un *name = (struct sockaddr_un *)&address->candidates[0].storage;
    if (path[0] == '\0' || strlen(path) >= sizeof(name->sun_path)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "address '%s': a socket path has 1 to %zu bytes", address->text,
                         sizeof(name->sun_path) - 1);
    }
    name->sun_family = AF_UNIX;
    memcpy(name->sun_path, path, strlen(path) + 1);
    address->candidates[0].length = sizeof(*name);
    address->candidate_count = 1;
    snprintf(address->authority, sizeof(address->authority), "localhost");
    return 0;
}

/* Splits "host:port" or "[host]:port"; 0 when it has that form. */
static int address_split(const char *text, char *host, size_t size, const char **ret_port)
{
    const char *start = text;
    const char *end = strrchr(text, ':');
    if (end == NULL || end[1] == '\0' || strspn(end + 1, "0123456789") != strlen(end + 1)) {
        return -1;
    }
    *ret_port = end + 1;
    if (text[0] == '[') {
        if (end == text || end[-1] != ']') {
            return -1;
        }
        start++;
        end--;
    } else if (memchr(text, ':', (size_t)(end - text)) != NULL) {
        return -1; /* an IPv6 address without brackets */
    }
    if (end <= start || (size_t)(end - start) >= size) {
        return -1;
    }
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    return 0;
}

static int address_resolve_tcp(struct address *address, struct error *error)
{
    char host[200];
    const char *port = NULL;
    if (address_split(address->text, host, sizeof(host), &port) < 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "address '%s': write HOST:PORT, [IPV6]:PORT or unix:PATH", address->text);
    }
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int result = getaddrinfo(host, port, &hints, &list);
    if (result != 0) {
        return error_set(error, ERROR_UNAVAILABLE, "cannot connect to %s: %s", address->text,
                         gai_strerror(result));
    }
    for (struct addrinfo *entry = list;
         entry != NULL && address->candidate_count < ADDRESS_CANDIDATES_MAX;
         entry = entry->ai_next) {
        memcpy(&address->candidates[address->candidate_count].storage, entry->ai_addr,
               entry->ai_addrlen);
        address->candidates[address->candidate_count++].length = entry->ai_addrlen;
    }
    freeaddrinfo(list);
    snprintf(address->authority, sizeof(address->authority), "%s", address->text);
    return 0;
}

int address_resolve(const char *text, struct address *ret_address, struct error *error)
{
    struct address address = {0};
    if (strlen(text) >= sizeof(address.text)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "address: longer than %zu bytes",
                         sizeof(address.text) - 1);
    }
    strcpy(address.text, text);
    int result;
    if (strncmp(text, "unix:", 5) == 0) {
        result = address_resolve_unix(text + 5, &address, error);
    } else if (text[0] == '/') {
        result = address_resolve_unix(text, &address, error);
    } else {
        result = address_resolve_tcp(&address, error);
    }
    if (result == 0) {
        *ret_address = address;
    }
    return result;
}

int address_connect(const struct address *address, unsigned candidate)
{
    const struct sockaddr *name = (const struct sockaddr *)&address->candidates[candidate].storage;
    int fd = socket(name->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    int one = 1;
    if (name->sa_family != AF_UNIX) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    }
    if (connect(fd, name, address->candidates[candidate].length) < 0 && errno != EINPROGRESS) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

void address_default(char *text, size_t size)
{
    const char *server = getenv("TIDEPOOL_SERVER");
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    if (server != NULL && server[0] != '\0') {
        snprintf(text, size, "%s", server);
        return;
    }
    snprintf(text, size, "unix:%s", SOCKET_SYSTEM);
    if (access(SOCKET_SYSTEM, F_OK) == 0) {
        return;
    }
    char path[256] = "";
    if (access("/var/lib/tidepool/tidepool.sock", F_OK) == 0) {
        snprintf(path, sizeof(path), "/var/lib/tidepool/tidepool.sock");
    } else if (state != NULL && state[0] == '/') {
        snprintf(path, sizeof(path), "%s/tidepool/tidepool.sock", state);
    } else if (home != NULL && home[0] == '/') {
        snprintf(path, sizeof(path), "%s/.local/state/tidepool/tidepool.sock", home);
    }
    if (path[0] != '\0' && access(path, F_OK) == 0) {
        snprintf(text, size, "unix:%s", path);
    }
}

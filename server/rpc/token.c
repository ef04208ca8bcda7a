#include "server/rpc/token.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_owner(int fd, const char *path, struct error *error)
{
    struct stat status;
    if (fstat(fd, &status) < 0) {
        return error_set_errno(error, errno, "token file '%s'", path);
    }
    if (!S_ISREG(status.st_mode) || (status.st_mode & 077) != 0) {
        return error_set(error, ERROR_PERMISSION_DENIED,
                         "token file '%s' can be read by others than its owner (mode %03o): "
                         "chmod 600 it",
                         path, (unsigned)(status.st_mode & 0777));
    }
    return 0;
}

static int check_text(const char *token, size_t length, const char *path, struct error *error)
{
    bool printable = length >= 16 && length < TOKEN_SIZE;
    for (size_t i = 0; i < length && printable; i++) {
        printable = token[i] > ' ' && token[i] < 0x7f;
    }
    return printable ? 0
                     : error_set(error, ERROR_INVALID_ARGUMENT,
                                 "token file '%s': must hold one line of 16 to %d printable "
                                 "characters without spaces",
                                 path, TOKEN_SIZE - 1);
}

int token_read(const char *path, char ret_token[TOKEN_SIZE], struct error *error)
{
    char text[TOKEN_SIZE + 2];
    int result = -ERROR_INTERNAL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return error_set_errno(error, errno, "open token file '%s'", path);
    }
    result = check_owner(fd, path, error);
    if (result < 0) {
        goto out;
    }
    ssize_t length = read(fd, text, sizeof text);
    if (length < 0) {
        result = error_set_errno(error, errno, "read token file '%s'", path);
        goto out;
    }
    if (length > 0 && text[length - 1] == '\n') {
        length--;
    }
    result = check_text(text, (size_t)length, path, error);
    if (result == 0) {
        memcpy(ret_token, text, (size_t)length);
        ret_token[length] = '\0';
    }
out:
    close(fd);
    explicit_bzero(text, sizeof text);
    return result;
}

bool token_matches(const char token[TOKEN_SIZE], const char *authorization)
{
    static const char scheme[] = "Bearer ";
    if (authorization == NULL || token[0] == '\0' ||
        strncasecmp(authorization, scheme, sizeof scheme - 1) != 0) {
        return false;
    }
    const char *given = authorization + sizeof scheme - 1;
    size_t length = strlen(token);
    size_t given_length = strlen(given);
    unsigned difference = length != given_length;
    for (size_t i = 0; i < given_length; i++) { /* as long as the given text is, not ours */
        difference |= (unsigned char)given[i] ^ (unsigned char)token[i % (length + 1)];
    }
    return difference == 0;
}

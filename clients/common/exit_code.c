#include "clients/common/exit_code.h"

enum exit_code exit_code_of(const struct error *error)
{
    switch (error->code) {
    case ERROR_NONE:
        return EXIT_OK;
    case ERROR_UNAVAILABLE:
        return EXIT_CONNECT;
    case ERROR_DEADLINE_EXCEEDED:
        return EXIT_TIMEOUT;
    case ERROR_INVALID_ARGUMENT:
    case ERROR_NOT_FOUND:
    case ERROR_ALREADY_EXISTS:
    case ERROR_PERMISSION_DENIED:
    case ERROR_RESOURCE_EXHAUSTED:
    case ERROR_FAILED_PRECONDITION:
    case ERROR_ABORTED:
    case ERROR_OUT_OF_RANGE:
    case ERROR_UNAUTHENTICATED:
        return EXIT_REFUSED;
    default:
        return EXIT_OTHER;
    }
}

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "clients/common/grpc_client_internal.h"
#include "server/base/clock.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void grpc_text_decode(const char *value, size_t length, char *text, size_t size)
{
    size_t written = 0;
    for (size_t i = 0; i < length && written + 1 < size; i++) {
        if (value[i] == '%' && i + 2 < length && hex_digit(value[i + 1]) >= 0 &&
            hex_digit(value[i + 2]) >= 0) {
            text[written++] = (char)(hex_digit(value[i + 1]) << 4 | hex_digit(value[i + 2]));
            i += 2;
        } else {
            text[written++] = value[i];
        }
    }
    text[written] = '\0';
    for (char *p = text; *p != '\0'; p++) {
        *p = (unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p; /* it goes to a terminal */
    }
}

void grpc_timeout_encode(uint64_t deadline_ns, uint64_t now_ns, char *text, size_t size)
{
    static const struct {
        uint64_t ns;
        char unit;
    } units[] = {{1, 'n'}, {NS_PER_US, 'u'}, {NS_PER_MS, 'm'}, {NS_PER_S, 'S'}};
    uint64_t left = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        uint64_t value = left / units[i].ns;
        if (value <= 99999999) { /* eight digits are all the protocol has */
            snprintf(text, size, "%" PRIu64 "%c", value, units[i].unit);
            return;
        }
    }
    snprintf(text, size, "99999999S");
}

static enum error_code status_of_http2(uint32_t http2_error)
{
    switch (http2_error) {
    case NGHTTP2_REFUSED_STREAM:
        return ERROR_UNAVAILABLE;
    case NGHTTP2_CANCEL:
        return ERROR_CANCELLED;
    case NGHTTP2_ENHANCE_YOUR_CALM:
        return ERROR_RESOURCE_EXHAUSTED;
    case NGHTTP2_INADEQUATE_SECURITY:
        return ERROR_PERMISSION_DENIED;
    default:
        return ERROR_INTERNAL;
    }
}

static enum error_code status_of_http(unsigned http_status)
{
    switch (http_status) {
    case 400:
    case 431:
        return ERROR_INTERNAL;
    case 401:
        return ERROR_UNAUTHENTICATED;
    case 403:
        return ERROR_PERMISSION_DENIED;
    case 404:
        return ERROR_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return ERROR_UNAVAILABLE;
    default:
        return ERROR_UNKNOWN;
    }
}

enum error_code grpc_status_without_trailer(unsigned http_status, uint32_t http2_error, char *text,
                                            size_t size)
{
    if (http_status != 0 && http_status != 200) {
        snprintf(text, size, "the server answered HTTP status %u instead of gRPC", http_status);
        return status_of_http(http_status);
    }
    if (http2_error == NGHTTP2_NO_ERROR) {
        snprintf(text, size, "the answer ended without a status");
        return ERROR_INTERNAL;
    }
    snprintf(text, size, "the stream was reset by the server: %s",
             nghttp2_http2_strerror(http2_error));
    return status_of_http2(http2_error);
}

#include "models/onnx/message.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* "path/file.cc:123 " at the start: the length of it, 0 when there is none. */
static size_t location_length(const char *text)
{
    size_t word = strcspn(text, " \n");
    const char *colon = memrchr(text, ':', word);
    if (colon == NULL || colon - text < 3) {
        return 0;
    }
    for (const char *digit = colon + 1; digit < text + word; digit++) {
        if (!isdigit((unsigned char)*digit)) {
            return 0;
        }
    }
    if (strncmp(colon - 3, ".cc", 3) != 0 && strncmp(colon - 2, ".h", 2) != 0) {
        return 0;
    }
    return text[word] == '\0' ? word : word + 1;
}

/* The library puts the function's signature after the place: "void a::b(const C&) const [with T =
 * d] ". Returns what follows it. */
static const char *signature_skip(const char *text)
{
    const char *at = strchr(text, '(');
    int depth = 0;
    if (at == NULL) {
        return text;
    }
    for (; *at != '\0'; at++) {
        depth += *at == '(';
        depth -= *at == ')';
        if (depth == 0) {
            break;
        }
    }
    if (*at == '\0') {
        return text;
    }
    at += 1 + strspn(at + 1, " ");
    if (strncmp(at, "const", 5) == 0 && !isalnum((unsigned char)at[5])) {
        at += 5 + strspn(at + 5, " ");
    }
    if (strncmp(at, "[with ", 6) == 0 && strchr(at, ']') != NULL) {
        at = strchr(at, ']') + 1;
    }
    return at + strspn(at, " ");
}

/* The wrapping: "Non-zero status code returned while running X node. … Status Message: <text>". */
static const char *message_core(const char *message)
{
    static const char mark[] = "Status Message: ";
    const char *core = message;
    for (const char *next = strstr(core, mark); next != NULL; next = strstr(core, mark)) {
        core = next + sizeof(mark) - 1;
    }
    for (size_t skip = location_length(core); skip > 0; skip = location_length(core)) {
        core = signature_skip(core + skip);
    }
    return core;
}

/* Length of the well-formed UTF-8 character at `at`, 0 when there is none. */
static size_t character_length(const unsigned char *at)
{
    size_t length = at[0] < 0x80             ? 1
                    : (at[0] & 0xE0) == 0xC0 ? 2
                    : (at[0] & 0xF0) == 0xE0 ? 3
                    : (at[0] & 0xF8) == 0xF0 ? 4
                                             : 0;
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return length;
}

void onnx_message_clean(const char *message, char *ret_text, size_t size)
{
    const char *at = message_core(message);
    size_t length = 0;
    while (*at != '\0') {
        size_t wide = character_length((const unsigned char *)at);
        if (length + (wide > 0 ? wide : 1) >= size) {
            break;
        }
        if (wide <= 1) {
            ret_text[length] = wide == 1 && (unsigned char)*at >= ' ' && *at != 0x7F ? *at : ' ';
            length += length == 0 || ret_text[length] != ' ' || ret_text[length - 1] != ' ';
            at++;
            continue;
        }
        memcpy(ret_text + length, at, wide);
        length += wide;
        at += wide;
    }
    while (length > 0 && ret_text[length - 1] == ' ') {
        length--;
    }
    ret_text[length] = '\0';
    if (length == 0) {
        (void)snprintf(ret_text, size, "an unnamed error");
    }
}

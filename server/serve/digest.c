#include "server/serve/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

static int file_add(EVP_MD_CTX *context, const char *path, struct error *error)
{
    static const size_t block_size = 1 << 16;
    unsigned char block[1 << 16];
    size_t got;
    int result = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return error_set_errno(error, errno, "open '%s'", path);
    }
    while (result == 0 && (got = fread(block, 1, block_size, file)) > 0) {
        if (EVP_DigestUpdate(context, block, got) != 1) {
            result = error_set(error, ERROR_INTERNAL, "SHA-256 is not available");
        }
    }
    if (result == 0 && ferror(file)) {
        result = error_set_errno(error, errno, "read '%s'", path);
    }
    (void)fclose(file);
    return result;
}

int digest_compute(const char *path, const char *text, char ret_digest[DIGEST_TEXT_SIZE],
                   struct error *error)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    int result = 0;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context == NULL || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1) {
        result = error_set(error, ERROR_INTERNAL, "SHA-256 is not available");
    }
    if (result == 0 && path != NULL) {
        result = file_add(context, path, error);
    }
    if (result == 0 && (EVP_DigestUpdate(context, text, strlen(text)) != 1 ||
                        EVP_DigestFinal_ex(context, digest, &length) != 1)) {
        result = error_set(error, ERROR_INTERNAL, "SHA-256 is not available");
    }
    for (unsigned i = 0; i < length && result == 0; i++) {
        (void)snprintf(ret_digest + 2 * i, 3, "%02x", digest[i]);
    }
    EVP_MD_CTX_free(context);
    return result;
}

#include <ftw.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "kit_onnx.h"
#include "models/runtime.h"

int kit_onnx_set(void **state)
{
    const char *venv = getenv("TEST_VENV");
    char pattern[4096];
    glob_t found;
    (void)state;
    (void)snprintf(pattern, sizeof(pattern),
                   "%s/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*",
                   venv == NULL ? "build/venv" : venv);
    if (glob(pattern, 0, NULL, &found) != 0) {
        (void)fprintf(stderr, "no ONNX Runtime at %s: run `make deps`\n", pattern);
        return -1;
    }
    onnx_set_library(found.gl_pathv[0]);
    globfree(&found);
    return 0;
}

const char *kit_models(void)
{
    const char *models = getenv("TEST_MODELS");
    return models == NULL ? "build/test-models" : models;
}

void kit_folder_make(char *ret_path, unsigned long size)
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(ret_path, size, "%s/tidepool-test-XXXXXX", base == NULL ? "/tmp" : base);
    assert_non_null(mkdtemp(ret_path));
}

static int entry_remove(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

void kit_folder_remove(const char *path)
{
    assert_int_equal(nftw(path, entry_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void kit_file_write(const char *folder, const char *relative, const char *text)
{
    char path[4096];
    int length = snprintf(path, sizeof(path), "%s/%s", folder, relative);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(path, 0755);
        *slash = '/';
    }
    assert_true(length < (int)sizeof(path));
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

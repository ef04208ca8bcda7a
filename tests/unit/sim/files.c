#include "tests/unit/sim/files.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

const char *file_make(const char *text, bool compressed)
{
    static char names[4][40];
    static unsigned next;
    char *name = names[next++ % 4];
    strcpy(name, "/tmp/tidepool-trace-XXXXXX");
    int fd = mkstemp(name);
    assert(fd >= 0);
    if (compressed) {
        gzFile file = gzdopen(fd, "wb");
        assert(gzputs(file, text) == (int)strlen(text));
        assert(gzclose(file) == Z_OK);
    } else {
        assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
        close(fd);
    }
    return name;
}

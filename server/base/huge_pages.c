/* huge_pages.c: sets glibc's tunable and starts the program again. */
#include "server/base/huge_pages.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KERNEL_SETTING "/sys/kernel/mm/transparent_hugepage/enabled"
#define TUNABLE "glibc.malloc.hugetlb"

static bool kernel_waits_to_be_asked(void)
{
    char line[128] = "";
    FILE *file = fopen(KERNEL_SETTING, "re");
    if (file != NULL) {
        if (fgets(line, sizeof line, file) == NULL) {
            line[0] = '\0';
        }
        fclose(file);
    }
    return strstr(line, "[madvise]") != NULL;
}

void huge_pages_use(char *const *arguments)
{
    const char *tunables = getenv("GLIBC_TUNABLES");
    char program[PATH_MAX], setting[4096];
    if ((tunables != NULL && strstr(tunables, TUNABLE) != NULL) || !kernel_waits_to_be_asked()) {
        return;
    }
    /* Not by /proc/self/exe itself: the process would be called "exe". */
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    int size = snprintf(setting, sizeof setting, "%s%s" TUNABLE "=1",
                        tunables != NULL ? tunables : "", tunables != NULL ? ":" : "");
    if (length <= 0 || size >= (int)sizeof setting || setenv("GLIBC_TUNABLES", setting, 1) < 0) {
        return;
    }
    program[length] = '\0';
    execv(program, arguments);
}

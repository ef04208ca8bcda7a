#include "server/store/damage.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/folder.h"
#include "server/base/log.h"

#define NAME_MAX_BYTES (PATH_MAX + 64)

/* A name that nothing has: two may be damaged within a second. */
static void choose_name(const char *path, char name[NAME_MAX_BYTES])
{
    char wal[NAME_MAX_BYTES + 8];
    time_t seconds = (time_t)(clock_wall_ns() / NS_PER_S);
    do {
        struct tm utc;
        char when[32];
        gmtime_r(&seconds, &utc);
        strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &utc);
        snprintf(name, NAME_MAX_BYTES, "%s.damaged-%s", path, when);
        snprintf(wal, sizeof wal, "%s-wal", name);
        seconds++;
    } while (access(name, F_OK) == 0 || access(wal, F_OK) == 0);
}

static int move(const char *from, const char *to, struct error *error)
{
    if (rename(from, to) < 0 && errno != ENOENT) {
        return error_set_errno(error, errno, "move the damaged store '%s' to '%s'", from, to);
    }
    return 0;
}

int damage_move_aside(const char *path, const struct error *damage, char *ret_warning,
                      size_t warning_size, struct error *error)
{
    char name[NAME_MAX_BYTES];
    char from[NAME_MAX_BYTES + 8];
    char to[NAME_MAX_BYTES + 8];
    struct log_text where;
    struct log_text why;
    choose_name(path, name);
    /* The database first: a log without one is found damaged too, should a crash come between. */
    int result = move(path, name, error);
    if (result == 0) {
        snprintf(from, sizeof from, "%s-wal", path);
        snprintf(to, sizeof to, "%s-wal", name);
        result = move(from, to, error);
    }
    if (result == 0) {
        snprintf(from, sizeof from, "%s-shm", path);
        unlink(from); /* an index of the log, made anew by whoever opens it */
        /* The renames must not come after what is written next: a crash would mix both. */
        snprintf(from, sizeof from, "%s", path);
        result = folder_sync(dirname(from), error);
    }
    if (result == 0) {
        log_write(LOG_ERROR, "store", "damaged, moved aside",
                  "reason=%s moved_to=%s lost=\"all jobs, endpoints added by a call, mode, hold, "
                  "request ids, totals of the ledger\" kept=\"checkpoints, exported models\" "
                  "next=\"what can be read of it: sqlite3 FILE .recover\"",
                  log_quote(&why, damage->text), log_quote(&where, name));
        snprintf(
            ret_warning, warning_size,
            "the database was damaged and has been moved to %s: jobs, settings and totals from "
            "before this start are lost",
            name);
    }
    return result;
}

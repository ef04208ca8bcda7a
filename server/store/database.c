#include "server/store/database.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/store/schema.h"

/* How long a writer waits for a reader from outside (the sqlite3 shell). */
#define BUSY_TIMEOUT_MS 2000

static enum error_code code_of(int sqlite_code)
{
    switch (sqlite_code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
        return ERROR_RESOURCE_EXHAUSTED;
    case SQLITE_TOOBIG:
        return ERROR_INVALID_ARGUMENT;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return ERROR_DATA_LOSS;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return ERROR_FAILED_PRECONDITION;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
        return ERROR_PERMISSION_DENIED;
    case SQLITE_CONSTRAINT:
        return ERROR_ALREADY_EXISTS;
    default:
        return ERROR_INTERNAL;
    }
}

static const char *way_out(enum error_code code)
{
    switch (code) {
    case ERROR_RESOURCE_EXHAUSTED:
        return "; free some space on its disk";
    case ERROR_DATA_LOSS:
        return "; the next start moves it aside and begins anew";
    case ERROR_FAILED_PRECONDITION:
        return "; another program keeps it locked";
    case ERROR_PERMISSION_DENIED:
        return "; check who owns it, or give another --state DIR";
    default:
        return "";
    }
}

int database_error(sqlite3 *database, const char *what, struct error *error)
{
    enum error_code code = code_of(sqlite3_extended_errcode(database));
    const char *path = sqlite3_db_filename(database, "main");
    return error_set(error, code, "%s in store '%s': %s%s", what, path != NULL ? path : "?",
                     sqlite3_errmsg(database), way_out(code));
}

int database_run(sqlite3 *database, const char *sql, const char *what, struct error *error)
{
    if (sqlite3_exec(database, sql, NULL, NULL, NULL) != SQLITE_OK) {
        return database_error(database, what, error);
    }
    return 0;
}

/* SQLite takes an empty file for a new database and drops the log beside it: all would be lost in
 * silence. */
static int refuse_empty(const char *path, bool known, struct error *error)
{
    char wal[PATH_MAX + 32];
    struct stat file;
    bool exists = stat(path, &file) == 0;
    snprintf(wal, sizeof wal, "%s-wal", path);
    if (exists && file.st_size == 0 && known) {
        return error_set(error, ERROR_DATA_LOSS, "open store '%s': it is empty, and was not", path);
    }
    if ((!exists || file.st_size == 0) && access(wal, F_OK) == 0) {
        return error_set(error, ERROR_DATA_LOSS, "open store '%s': only its log is there", path);
    }
    return 0;
}

/* Pages that nobody reads for months are damaged too; a store is small. */
static int check_whole(sqlite3 *database, struct error *error)
{
    int result = 0;
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(database, "PRAGMA integrity_check(1)", -1, &statement, NULL) !=
            SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW) {
        result = database_error(database, "check", error);
    } else {
        const char *text = (const char *)sqlite3_column_text(statement, 0);
        if (text == NULL || strcmp(text, "ok") != 0) {
            result = error_set(error, ERROR_DATA_LOSS, "check store '%s': %s",
                               sqlite3_db_filename(database, "main"), text != NULL ? text : "?");
        }
    }
    sqlite3_finalize(statement);
    return result;
}

sqlite3 *database_open(const char *path, bool known, struct error *error)
{
    sqlite3 *database = NULL;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (refuse_empty(path, known, error) < 0) {
        return NULL;
    }
    int code = sqlite3_open_v2(path, &database, flags, NULL);
    if (code != SQLITE_OK) {
        error_set(error, code_of(code), "open store '%s': %s%s", path,
                  database != NULL ? sqlite3_errmsg(database) : sqlite3_errstr(code),
                  way_out(code_of(code)));
        goto failed;
    }
    sqlite3_busy_timeout(database, BUSY_TIMEOUT_MS);
    /* A small page cache: the store holds some hundred rows. */
    if (database_run(database,
                     "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                     "PRAGMA cache_size = -512; PRAGMA foreign_keys = ON;",
                     "prepare", error) < 0 ||
        check_whole(database, error) < 0 || schema_bring_up(database, error) < 0) {
        goto failed;
    }
    return database;
failed:
    /* What is damaged stays as it was found. */
    sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_close_v2(database);
    return NULL;
}

void database_close(sqlite3 *database)
{
    sqlite3_close_v2(database);
}

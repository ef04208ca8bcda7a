#include "server/store/schema.h"

#include <stdio.h>

#include "server/base/log.h"
#include "server/store/database.h"
#include "server/store/store.h"

/* What makes a version out of the one before; 0 is an empty database. Never changed: databases
 * that were made by it are out there. */
static const char *const versions_sql[STORE_SCHEMA + 1] = {
    [1] = "CREATE TABLE jobs ("
          " number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, request_id TEXT UNIQUE,"
          " specification TEXT NOT NULL, state TEXT NOT NULL, ended INTEGER NOT NULL,"
          " reason TEXT NOT NULL, submitted_wall_ns INTEGER NOT NULL,"
          " started_wall_ns INTEGER NOT NULL, finished_wall_ns INTEGER NOT NULL,"
          " preemptions INTEGER NOT NULL, result TEXT NOT NULL);"
          "CREATE TABLE endpoints (name TEXT PRIMARY KEY, path TEXT NOT NULL,"
          " options TEXT NOT NULL) WITHOUT ROWID;"
          "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
          "CREATE TABLE accounts (name TEXT PRIMARY KEY, time_ns INTEGER NOT NULL) WITHOUT ROWID;"
          "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
          "INSERT INTO counters VALUES ('epoch', 0), ('job_number', 0);",
    /* Request ids outlive the jobs that are forgotten, and end after a day. */
    [2] = "CREATE TABLE requests (id TEXT PRIMARY KEY, job INTEGER NOT NULL, job_id TEXT NOT NULL,"
          " made_wall_ns INTEGER NOT NULL) WITHOUT ROWID;"
          "CREATE INDEX requests_made ON requests (made_wall_ns);"
          "INSERT INTO requests SELECT request_id, number, id, submitted_wall_ns FROM jobs"
          " WHERE request_id IS NOT NULL;"
          "CREATE TABLE jobs_2 ("
          " number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, specification TEXT NOT NULL,"
          " state TEXT NOT NULL, ended INTEGER NOT NULL, reason TEXT NOT NULL,"
          " submitted_wall_ns INTEGER NOT NULL, started_wall_ns INTEGER NOT NULL,"
          " finished_wall_ns INTEGER NOT NULL, preemptions INTEGER NOT NULL,"
          " result TEXT NOT NULL);"
          "INSERT INTO jobs_2 SELECT number, id, specification, state, ended, reason,"
          " submitted_wall_ns, started_wall_ns, finished_wall_ns, preemptions, result FROM jobs;"
          "DROP TABLE jobs;"
          "ALTER TABLE jobs_2 RENAME TO jobs;",
    /* Outside jobs hold their devices over a restart. */
    [3] = "ALTER TABLE jobs ADD COLUMN lease TEXT NOT NULL DEFAULT '';",
    [4] = "CREATE TABLE overrides (object TEXT NOT NULL, name TEXT NOT NULL, field TEXT NOT NULL,"
          " actor TEXT NOT NULL, reason TEXT NOT NULL, value INTEGER NOT NULL,"
          " made_wall_ns INTEGER NOT NULL, expires_wall_ns INTEGER NOT NULL,"
          " PRIMARY KEY (object, name, field)) WITHOUT ROWID;",
};

static int read_version(sqlite3 *database, int *ret_version, struct error *error)
{
    int result = -ERROR_INTERNAL;
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(database, "PRAGMA user_version", -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW) {
        result = database_error(database, "read the schema's version", error);
        goto out;
    }
    *ret_version = sqlite3_column_int(statement, 0);
    result = 0;
out:
    sqlite3_finalize(statement);
    return result;
}

/* To `version` from the one before. */
static int make_version(sqlite3 *database, int version, struct error *error)
{
    static const char what[] = "bring the schema up to date";
    char note[64];
    int result = database_run(database, "BEGIN IMMEDIATE", what, error);
    if (result < 0) {
        return result;
    }
    snprintf(note, sizeof note, "PRAGMA user_version = %d; COMMIT", version);
    result = database_run(database, versions_sql[version], what, error);
    if (result == 0) {
        result = database_run(database, note, what, error);
    }
    /* Some errors have already ended the transaction. */
    if (result < 0 && sqlite3_get_autocommit(database) == 0) {
        database_run(database, "ROLLBACK", what, NULL);
    }
    return result;
}

int schema_bring_up(sqlite3 *database, struct error *error)
{
    int found = 0;
    int result = read_version(database, &found, error);
    if (result < 0) {
        return result;
    }
    if (found > STORE_SCHEMA) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "store '%s' was written by a newer Tidepool (schema %d, this one knows "
                         "%d): start that version, or give another --state DIR",
                         sqlite3_db_filename(database, "main"), found, STORE_SCHEMA);
    }
    for (int version = found + 1; version <= STORE_SCHEMA && result == 0; version++) {
        result = make_version(database, version, error);
    }
    if (result == 0 && found > 0 && found < STORE_SCHEMA) {
        log_write(LOG_INFO, "store", "schema brought up to date", "from=%d to=%d", found,
                  STORE_SCHEMA);
    }
    return result;
}

#include "server/store/write.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/store/database.h"

/* Values are bound in order: the texts, then the numbers. */
#define TEXT(text) #text
#define VALUE(macro) TEXT(macro)
static const struct statement {
    const char *sql;
    bool lazy; /* a later one makes up for it: may be lost with the machine's power */
} statements[WRITE_KINDS] = {
    [WRITE_NOTHING] = {.lazy = true},
    [WRITE_JOB] =
        {"INSERT INTO jobs (id, specification, state, reason, result, lease, number,"
         " ended, submitted_wall_ns, started_wall_ns, finished_wall_ns, preemptions)"
         " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
         " ON CONFLICT (number) DO UPDATE SET specification = ?2, state = ?3, reason = ?4,"
         " result = ?5, lease = ?6, ended = ?8, started_wall_ns = ?10,"
         " finished_wall_ns = ?11, preemptions = ?12"},
    [WRITE_REQUEST] = {"INSERT INTO requests (id, job_id, job, made_wall_ns)"
                       " VALUES (?1, ?2, ?3, ?4)"
                       " ON CONFLICT (id) DO UPDATE SET job_id = ?2, job = ?3,"
                       " made_wall_ns = ?4"},
    [WRITE_ENDPOINT] = {"INSERT INTO endpoints (name, path, options) VALUES (?1, ?2, ?3)"
                        " ON CONFLICT (name) DO UPDATE SET path = ?2, options = ?3"},
    [WRITE_ENDPOINT_GONE] = {"DELETE FROM endpoints WHERE name = ?1"},
    [WRITE_SETTING] = {"INSERT INTO settings (name, value) VALUES (?1, ?2)"
                       " ON CONFLICT (name) DO UPDATE SET value = ?2"},
    [WRITE_OVERRIDE] = {"INSERT INTO overrides (object, name, field, actor, reason, value,"
                        " made_wall_ns, expires_wall_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
                        " ON CONFLICT (object, name, field) DO UPDATE SET actor = ?4, reason = ?5,"
                        " value = ?6, made_wall_ns = ?7, expires_wall_ns = ?8"},
    [WRITE_OVERRIDE_GONE] = {"DELETE FROM overrides WHERE object = ?1 AND name = ?2"
                             " AND field = ?3"},
    [WRITE_ACCOUNT] = {"INSERT INTO accounts (name, time_ns) VALUES (?1, ?2)"
                       " ON CONFLICT (name) DO UPDATE SET time_ns = ?2",
                       .lazy = true},
};
static const char job_number_sql[] =
    "UPDATE counters SET value = max(value, ?1) WHERE name = 'job_number'";
/* What is over the bound goes, oldest first. */
static const char forget_sql[] =
    "DELETE FROM jobs WHERE ended AND number <= (SELECT number FROM jobs WHERE ended"
    " ORDER BY number DESC LIMIT 1 OFFSET " VALUE(STORE_ENDED_JOBS_MAX) ")";

static const char forget_requests_sql[] = "DELETE FROM requests WHERE made_wall_ns <= ?1";

struct writer {
    sqlite3 *database;
    sqlite3_stmt *statements[WRITE_KINDS];
    sqlite3_stmt *job_number;
    sqlite3_stmt *forget, *forget_requests;
    bool lazy; /* SQLite does not wait for the disk now */
};

/* ---- one write ------------------------------------------------------------------------------ */

struct write *write_create(enum write_kind kind, store_done *done, void *context)
{
    struct write *write = calloc(1, sizeof *write);
    if (write != NULL) {
        write->kind = kind;
        write->done = done;
        write->context = context;
    }
    return write;
}

void write_destroy(struct write *write)
{
    if (write == NULL) {
        return;
    }
    for (int i = 0; i < write->text_count; i++) {
        free(write->texts[i]);
    }
    write_destroy(write->with);
    free(write);
}

bool write_add_text(struct write *write, const char *text)
{
    assert(write->text_count < WRITE_TEXTS_MAX);
    char *copy = strdup(text != NULL ? text : "");
    if (copy == NULL) {
        return false;
    }
    write->texts[write->text_count++] = copy;
    return true;
}

void write_add_number(struct write *write, uint64_t number)
{
    assert(write->number_count < WRITE_NUMBERS_MAX);
    write->numbers[write->number_count++] = (int64_t)number;
}

bool write_copy_job(struct write *write, const struct store_job *job)
{
    write_add_number(write, job->number);
    write_add_number(write, job->ended ? 1 : 0);
    write_add_number(write, job->submitted_wall_ns);
    write_add_number(write, job->started_wall_ns);
    write_add_number(write, job->finished_wall_ns);
    write_add_number(write, job->preemptions);
    return write_add_text(write, job->id) && write_add_text(write, job->specification) &&
           write_add_text(write, job->state) && write_add_text(write, job->reason) &&
           write_add_text(write, job->result) && write_add_text(write, job->lease);
}

bool write_copy_request(struct write *write, const struct store_request *request)
{
    struct write *copy = write->with = write_create(WRITE_REQUEST, NULL, NULL);
    if (copy == NULL) {
        return false;
    }
    write_add_number(copy, request->job);
    write_add_number(copy, request->made_wall_ns);
    return write_add_text(copy, request->id) && write_add_text(copy, request->job_id);
}

bool write_copy_override(struct write *write, const struct store_override *row)
{
    bool complete = write_add_text(write, row->object) && write_add_text(write, row->name) &&
                    write_add_text(write, row->field);
    if (row->gone || !complete) {
        return complete;
    }
    write_add_number(write, (uint64_t)row->value);
    write_add_number(write, row->made_wall_ns);
    write_add_number(write, row->expires_wall_ns);
    return write_add_text(write, row->actor) && write_add_text(write, row->reason);
}

/* ---- the writer ----------------------------------------------------------------------------- */

static int prepare(sqlite3 *database, const char *sql, sqlite3_stmt **ret_statement,
                   struct error *error)
{
    if (sqlite3_prepare_v3(database, sql, -1, SQLITE_PREPARE_PERSISTENT, ret_statement, NULL) !=
        SQLITE_OK) {
        return database_error(database, "prepare", error);
    }
    return 0;
}

struct writer *writer_create(sqlite3 *database, struct error *error)
{
    struct writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "open store: no memory");
        return NULL;
    }
    writer->database = database;
    int result = prepare(database, job_number_sql, &writer->job_number, error);
    if (result == 0) {
        result = prepare(database, forget_sql, &writer->forget, error);
    }
    if (result == 0) {
        result = prepare(database, forget_requests_sql, &writer->forget_requests, error);
    }
    for (int kind = WRITE_JOB; kind < WRITE_KINDS && result == 0; kind++) {
        result = prepare(database, statements[kind].sql, &writer->statements[kind], error);
    }
    if (result < 0) {
        writer_destroy(writer);
        return NULL;
    }
    return writer;
}

void writer_destroy(struct writer *writer)
{
    if (writer == NULL) {
        return;
    }
    for (int kind = WRITE_JOB; kind < WRITE_KINDS; kind++) {
        sqlite3_finalize(writer->statements[kind]);
    }
    sqlite3_finalize(writer->job_number);
    sqlite3_finalize(writer->forget);
    sqlite3_finalize(writer->forget_requests);
    free(writer);
}

static int step(struct writer *writer, sqlite3_stmt *statement, struct error *error)
{
    int result = 0;
    if (sqlite3_step(statement) != SQLITE_DONE) {
        result = database_error(writer->database, "write", error);
    }
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return result;
}

/* Its own statement, with its values. */
static int apply_values(struct writer *writer, const struct write *write, struct error *error)
{
    sqlite3_stmt *statement = writer->statements[write->kind];
    int code = SQLITE_OK;
    int column = 1;
    for (int i = 0; i < write->text_count && code == SQLITE_OK; i++) {
        code = sqlite3_bind_text(statement, column++, write->texts[i], -1, SQLITE_STATIC);
    }
    for (int i = 0; i < write->number_count && code == SQLITE_OK; i++) {
        code = sqlite3_bind_int64(statement, column++, write->numbers[i]);
    }
    if (code != SQLITE_OK) {
        int result = database_error(writer->database, "write", error);
        sqlite3_clear_bindings(statement);
        return result;
    }
    return step(writer, statement, error);
}

static int step_with(struct writer *writer, sqlite3_stmt *statement, int64_t number,
                     struct error *error)
{
    sqlite3_bind_int64(statement, 1, number);
    return step(writer, statement, error);
}

static int apply(struct writer *writer, const struct write *write, struct error *error)
{
    int result = 0;
    for (; write != NULL && write->kind != WRITE_NOTHING && result == 0; write = write->with) {
        result = apply_values(writer, write, error);
        if (result == 0 && write->kind == WRITE_JOB) {
            result = step_with(writer, writer->job_number, write->numbers[0], error);
        } else if (result == 0 && write->kind == WRITE_REQUEST) {
            result = step_with(writer, writer->forget_requests,
                               write->numbers[1] - (int64_t)STORE_REQUEST_NS, error);
        }
    }
    return result;
}

static int apply_all(struct writer *writer, const struct letter *letters, struct error *error)
{
    bool jobs_ended = false;
    int result = 0;
    for (const struct letter *letter = letters; letter != NULL && result == 0;
         letter = letter->next) {
        const struct write *write = (const struct write *)letter;
        result = apply(writer, write, error);
        jobs_ended |= write->kind == WRITE_JOB && write->numbers[1] != 0;
    }
    if (result == 0 && jobs_ended) {
        result = step(writer, writer->forget, error);
    }
    return result;
}

static void answer(struct letter *letters, const struct error *error)
{
    while (letters != NULL) {
        struct write *write = (struct write *)letters;
        letters = letters->next;
        if (write->done != NULL) {
            write->done(write->context, error);
        }
        write_destroy(write);
    }
}

/* Waits for the disk from now on, or not. */
static int set_lazy(struct writer *writer, bool lazy, struct error *error)
{
    const char *sql = lazy ? "PRAGMA synchronous = NORMAL" : "PRAGMA synchronous = FULL";
    int result = 0;
    if (lazy != writer->lazy &&
        (result = database_run(writer->database, sql, "write", error)) == 0) {
        writer->lazy = lazy;
    }
    return result;
}

static int commit(struct writer *writer, const struct letter *letters, struct error *error)
{
    bool lazy = true;
    for (const struct letter *letter = letters; letter != NULL; letter = letter->next) {
        lazy &= statements[((const struct write *)letter)->kind].lazy;
    }
    int result = set_lazy(writer, lazy, error);
    if (result == 0) {
        result = database_run(writer->database, "BEGIN IMMEDIATE", "write", error);
    }
    if (result == 0) {
        result = apply_all(writer, letters, error);
    }
    if (result == 0) {
        result = database_run(writer->database, "COMMIT", "write", error);
    }
    /* Some errors have already ended the transaction. */
    if (result < 0 && sqlite3_get_autocommit(writer->database) == 0) {
        database_run(writer->database, "ROLLBACK", "write", NULL);
    }
    return result;
}

static void commit_singly(struct writer *writer, struct letter *letters)
{
    while (letters != NULL) {
        struct letter *letter = letters;
        letters = letter->next;
        letter->next = NULL;
        writer_commit(writer, letter);
    }
}

/* One write that the database refuses must not take its neighbours with it. */
static bool is_one_writes_fault(int result)
{
    return result == -ERROR_ALREADY_EXISTS || result == -ERROR_INVALID_ARGUMENT;
}

void writer_commit(struct writer *writer, struct letter *letters)
{
    struct error error = {0};
    bool only_wakes = letters->next == NULL && ((struct write *)letters)->kind == WRITE_NOTHING;
    int result = only_wakes ? 0 : commit(writer, letters, &error);
    if (is_one_writes_fault(result) && letters->next != NULL) {
        commit_singly(writer, letters);
        return;
    }
    if (result < 0) {
        struct log_text text;
        log_write(LOG_ERROR, "store", "not written", "reason=%s", log_quote(&text, error.text));
    }
    answer(letters, result < 0 ? &error : NULL);
}

void writer_drop(struct letter *letters)
{
    struct error error = {0};
    error_set(&error, ERROR_UNAVAILABLE, "the store is closed");
    answer(letters, &error);
}

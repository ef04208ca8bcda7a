#include "server/store/store.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/base/log.h"
#include "server/base/mailbox.h"
#include "server/store/damage.h"
#include "server/store/database.h"
#include "server/store/lock.h"
#include "server/store/write.h"

struct store {
    int lock_fd;       /* set by open */
    uint64_t epoch;    /* set by open */
    char warning[512]; /* the same */
    bool started;      /* set by start */
    pthread_t thread;
    sqlite3 *database; /* the store's thread after start, else the opener's */
    struct writer *writer;
    struct mailbox *mailbox;
    _Atomic bool stopping;
};

/* ---- open ----------------------------------------------------------------------------------- */

static int read_number(sqlite3 *database, const char *sql, const char *text, uint64_t *ret_value,
                       struct error *error)
{
    int result = 0;
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(database, sql, -1, &statement, NULL) != SQLITE_OK ||
        (text != NULL &&
         sqlite3_bind_text(statement, 1, text, -1, SQLITE_TRANSIENT) != SQLITE_OK)) {
        result = database_error(database, "read", error);
        goto out;
    }
    int code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        *ret_value = (uint64_t)sqlite3_column_int64(statement, 0);
    } else if (code == SQLITE_DONE) {
        *ret_value = 0;
    } else {
        result = database_error(database, "read", error);
    }
out:
    sqlite3_finalize(statement);
    return result;
}

/* `noted` is the epoch of the last start as the lock file has it. A database that knows less was
 * lost, or an older copy was put in its place; epochs go on all the same, or tokens, revisions and
 * logs of events would come twice. */
static int count_start(struct store *store, uint64_t noted, struct error *error)
{
    static const char epoch_sql[] = "SELECT value FROM counters WHERE name = 'epoch'";
    char update[96];
    uint64_t known = 0;
    int result = read_number(store->database, epoch_sql, NULL, &known, error);
    if (result < 0) {
        return result;
    }
    if (known < noted) {
        log_write(LOG_ERROR, "store", known == 0 ? "begun anew" : "older than the last start",
                  "starts_in_it=%llu starts=%llu", (unsigned long long)known,
                  (unsigned long long)noted);
        if (store->warning[0] == '\0') {
            snprintf(
                store->warning, sizeof store->warning,
                "the database is older than the last start, or was begun anew: what it did not "
                "know is lost");
        }
    }
    store->epoch = (known > noted ? known : noted) + 1;
    snprintf(update, sizeof update, "UPDATE counters SET value = %llu WHERE name = 'epoch'",
             (unsigned long long)store->epoch);
    result = database_run(store->database, update, "count this start", error);
    return result < 0 ? result : lock_note(store->lock_fd, store->epoch, error);
}

/* A damaged database is moved aside, with an error in the log, and a new one begun. */
static sqlite3 *open_or_begin_anew(struct store *store, const char *path, bool known,
                                   struct error *error)
{
    struct error damage = {0};
    sqlite3 *database = database_open(path, known, &damage);
    if (database != NULL) {
        return database;
    }
    if (damage.code != ERROR_DATA_LOSS) {
        error_set(error, damage.code, "%s", damage.text);
        return NULL;
    }
    int result = damage_move_aside(path, &damage, store->warning, sizeof store->warning, error);
    return result == 0 ? database_open(path, false, error) : NULL;
}

struct store *store_open(const char *directory, struct error *error)
{
    struct store *store = calloc(1, sizeof *store);
    char path[PATH_MAX + 16];
    if (store == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "open store: no memory");
        return NULL;
    }
    uint64_t noted = 0;
    store->lock_fd = lock_take(directory, &noted, error);
    if (store->lock_fd < 0) {
        goto failed;
    }
    snprintf(path, sizeof path, "%s/tidepool.db", directory);
    store->database = open_or_begin_anew(store, path, noted > 0, error);
    if (store->database == NULL || count_start(store, noted, error) < 0) {
        goto failed;
    }
    store->mailbox = mailbox_create();
    if (store->mailbox == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "open store: no memory or no descriptor");
        goto failed;
    }
    store->writer = writer_create(store->database, error);
    if (store->writer == NULL) {
        goto failed;
    }
    return store;
failed:
    store_close(store);
    return NULL;
}

const char *store_warning(const struct store *store)
{
    return store->warning;
}

uint64_t store_epoch(const struct store *store)
{
    return store->epoch;
}

/* ---- load ----------------------------------------------------------------------------------- */

static const char *column_text(sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return text != NULL ? text : "";
}

static void read_job(sqlite3_stmt *statement, struct store_job *job)
{
    *job = (struct store_job){
        .number = (uint64_t)sqlite3_column_int64(statement, 0),
        .id = column_text(statement, 1),
        .specification = column_text(statement, 2),
        .state = column_text(statement, 3),
        .ended = sqlite3_column_int(statement, 4) != 0,
        .reason = column_text(statement, 5),
        .submitted_wall_ns = (uint64_t)sqlite3_column_int64(statement, 6),
        .started_wall_ns = (uint64_t)sqlite3_column_int64(statement, 7),
        .finished_wall_ns = (uint64_t)sqlite3_column_int64(statement, 8),
        .preemptions = (uint64_t)sqlite3_column_int64(statement, 9),
        .result = column_text(statement, 10),
        .lease = column_text(statement, 11),
    };
}

int store_load_jobs(struct store *store,
                    int (*each)(void *context, const struct store_job *job, struct error *error),
                    void *context, struct error *error)
{
    static const char sql[] =
        "SELECT number, id, specification, state, ended, reason, submitted_wall_ns,"
        " started_wall_ns, finished_wall_ns, preemptions, result, lease FROM jobs ORDER BY number";
    int result = 0;
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(store->database, sql, -1, &statement, NULL) != SQLITE_OK) {
        return database_error(store->database, "read jobs", error);
    }
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW && result == 0) {
        struct store_job job;
        read_job(statement, &job);
        result = each(context, &job, error);
    }
    if (result == 0 && code != SQLITE_DONE) {
        result = database_error(store->database, "read jobs", error);
    }
    sqlite3_finalize(statement);
    return result;
}

int store_load_requests(struct store *store,
                        int (*each)(void *context, const struct store_request *request,
                                    struct error *error),
                        void *context, struct error *error)
{
    int result = 0;
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(store->database,
                           "SELECT id, job, job_id, made_wall_ns FROM requests"
                           " ORDER BY made_wall_ns, job",
                           -1, &statement, NULL) != SQLITE_OK) {
        return database_error(store->database, "read requests", error);
    }
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW && result == 0) {
        struct store_request request = {
            .id = column_text(statement, 0),
            .job = (uint64_t)sqlite3_column_int64(statement, 1),
            .job_id = column_text(statement, 2),
            .made_wall_ns = (uint64_t)sqlite3_column_int64(statement, 3),
        };
        result = each(context, &request, error);
    }
    if (result == 0 && code != SQLITE_DONE) {
        result = database_error(store->database, "read requests", error);
    }
    sqlite3_finalize(statement);
    return result;
}

int store_load_endpoints(struct store *store,
                         int (*each)(void *context, const struct store_endpoint *endpoint,
                                     struct error *error),
                         void *context, struct error *error)
{
    int result = 0;
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(store->database,
                           "SELECT name, path, options FROM endpoints ORDER BY name", -1,
                           &statement, NULL) != SQLITE_OK) {
        return database_error(store->database, "read endpoints", error);
    }
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW && result == 0) {
        struct store_endpoint endpoint = {.name = column_text(statement, 0),
                                          .path = column_text(statement, 1),
                                          .options = column_text(statement, 2)};
        result = each(context, &endpoint, error);
    }
    if (result == 0 && code != SQLITE_DONE) {
        result = database_error(store->database, "read endpoints", error);
    }
    sqlite3_finalize(statement);
    return result;
}

int store_load_overrides(struct store *store,
                         int (*each)(void *context, const struct store_override *row,
                                     struct error *error),
                         void *context, struct error *error)
{
    int result = 0;
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(store->database,
                           "SELECT object, name, field, actor, reason, value, made_wall_ns,"
                           " expires_wall_ns FROM overrides ORDER BY object, name, field",
                           -1, &statement, NULL) != SQLITE_OK) {
        return database_error(store->database, "read overrides", error);
    }
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW && result == 0) {
        struct store_override row = {
            .object = column_text(statement, 0),
            .name = column_text(statement, 1),
            .field = column_text(statement, 2),
            .actor = column_text(statement, 3),
            .reason = column_text(statement, 4),
            .value = sqlite3_column_int64(statement, 5),
            .made_wall_ns = (uint64_t)sqlite3_column_int64(statement, 6),
            .expires_wall_ns = (uint64_t)sqlite3_column_int64(statement, 7),
        };
        result = each(context, &row, error);
    }
    if (result == 0 && code != SQLITE_DONE) {
        result = database_error(store->database, "read overrides", error);
    }
    sqlite3_finalize(statement);
    return result;
}

int store_load_setting(struct store *store, const char *name, char **ret_value, struct error *error)
{
    int result = 0;
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(store->database, "SELECT value FROM settings WHERE name = ?", -1,
                           &statement, NULL) != SQLITE_OK ||
        sqlite3_bind_text(statement, 1, name, -1, SQLITE_TRANSIENT) != SQLITE_OK) {
        result = database_error(store->database, "read settings", error);
        goto out;
    }
    int code = sqlite3_step(statement);
    if (code == SQLITE_DONE) {
        *ret_value = NULL;
    } else if (code != SQLITE_ROW) {
        result = database_error(store->database, "read settings", error);
    } else {
        char *value = strdup(column_text(statement, 0));
        if (value == NULL) {
            result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "read settings: no memory");
            goto out;
        }
        *ret_value = value;
    }
out:
    sqlite3_finalize(statement);
    return result;
}

int store_load_job_number(struct store *store, uint64_t *ret_number, struct error *error)
{
    return read_number(store->database, "SELECT value FROM counters WHERE name = 'job_number'",
                       NULL, ret_number, error);
}

int store_load_account(struct store *store, const char *account, uint64_t *ret_ns,
                       struct error *error)
{
    return read_number(store->database, "SELECT time_ns FROM accounts WHERE name = ?", account,
                       ret_ns, error);
}

/* ---- write ---------------------------------------------------------------------------------- */

static void *store_main(void *arg)
{
    struct store *store = arg;
    struct pollfd pollfd = {.fd = mailbox_fd(store->mailbox), .events = POLLIN};
    pthread_setname_np(pthread_self(), "store");
    for (;;) {
        /* Read before taking: what was sent before stopping was set is then taken below. */
        bool stopping = atomic_load(&store->stopping);
        struct letter *letters = mailbox_take(store->mailbox);
        if (letters != NULL) {
            writer_commit(store->writer, letters);
        } else if (stopping) {
            return NULL;
        } else {
            poll(&pollfd, 1, -1);
        }
    }
}

int store_start(struct store *store, struct error *error)
{
    int number = pthread_create(&store->thread, NULL, store_main, store);
    if (number != 0) {
        return error_set_errno(error, number, "start the store's thread");
    }
    store->started = true;
    return 0;
}

static void stop_thread(struct store *store)
{
    struct write *wake = write_create(WRITE_NOTHING, NULL, NULL);
    atomic_store(&store->stopping, true);
    if (wake == NULL) {
        log_write(LOG_ERROR, "store", "stop", "reason=\"no memory\"");
        abort(); /* the thread cannot be woken, and closing under it would corrupt memory */
    }
    mailbox_send(store->mailbox, &wake->letter);
    pthread_join(store->thread, NULL);
}

void store_close(struct store *store)
{
    if (store == NULL) {
        return;
    }
    if (store->started) {
        stop_thread(store);
    }
    if (store->mailbox != NULL) {
        /* Queued before a start that never came. */
        writer_drop(mailbox_take(store->mailbox));
    }
    writer_destroy(store->writer);
    database_close(store->database);
    mailbox_destroy(store->mailbox);
    if (store->lock_fd >= 0) {
        close(store->lock_fd);
    }
    free(store);
}

static int send(struct store *store, struct write *write, bool complete)
{
    if (write == NULL || !complete) {
        write_destroy(write);
        return -ERROR_RESOURCE_EXHAUSTED;
    }
    mailbox_send(store->mailbox, &write->letter);
    return 0;
}

int store_add_job(struct store *store, const struct store_job *job,
                  const struct store_request *request, store_done *done, void *context)
{
    struct write *write = write_create(WRITE_JOB, done, context);
    return send(store, write,
                write != NULL && write_copy_job(write, job) &&
                    (request == NULL || write_copy_request(write, request)));
}

int store_put_job(struct store *store, const struct store_job *job, store_done *done, void *context)
{
    return store_add_job(store, job, NULL, done, context);
}

int store_put_endpoint(struct store *store, const struct store_endpoint *endpoint, store_done *done,
                       void *context)
{
    struct write *write = write_create(WRITE_ENDPOINT, done, context);
    return send(store, write,
                write != NULL && write_add_text(write, endpoint->name) &&
                    write_add_text(write, endpoint->path) &&
                    write_add_text(write, endpoint->options));
}

int store_remove_endpoint(struct store *store, const char *name, store_done *done, void *context)
{
    struct write *write = write_create(WRITE_ENDPOINT_GONE, done, context);
    return send(store, write, write != NULL && write_add_text(write, name));
}

int store_put_setting(struct store *store, const char *name, const char *value, store_done *done,
                      void *context)
{
    struct write *write = write_create(WRITE_SETTING, done, context);
    return send(store, write,
                write != NULL && write_add_text(write, name) && write_add_text(write, value));
}

int store_put_overrides(struct store *store, const struct store_override *rows, size_t count,
                        store_done *done, void *context)
{
    struct write *first = NULL;
    struct write **link = &first;
    bool complete = count > 0;
    for (size_t i = 0; i < count && complete; i++) {
        enum write_kind kind = rows[i].gone ? WRITE_OVERRIDE_GONE : WRITE_OVERRIDE;
        *link = write_create(kind, i == 0 ? done : NULL, i == 0 ? context : NULL);
        complete = *link != NULL && write_copy_override(*link, &rows[i]);
        link = *link != NULL ? &(*link)->with : link;
    }
    return send(store, first, complete);
}

int store_put_account(struct store *store, const char *account, uint64_t total_ns, store_done *done,
                      void *context)
{
    struct write *write = write_create(WRITE_ACCOUNT, done, context);
    bool complete = write != NULL && write_add_text(write, account);
    if (complete) {
        write_add_number(write, total_ns);
    }
    return send(store, write, complete);
}

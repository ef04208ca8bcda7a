#include "tests/unit/store/fixture.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

int place_setup(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    strcpy(place->directory, "/tmp/tidepool-store-XXXXXX");
    *state = place;
    return mkdtemp(place->directory) != NULL ? 0 : -1;
}

int place_teardown(void **state)
{
    struct place *place = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", place->directory);
    int result = system(command);
    free(place);
    return result;
}

struct store *open_or_fail(const struct place *place)
{
    struct error error = {0};
    struct store *store = store_open(place->directory, &error);
    if (store == NULL) {
        fail_msg("%s", error.text);
    }
    return store;
}

void count_answer(void *context, const struct error *error)
{
    struct answers *answers = context;
    pthread_mutex_lock(&answers->lock);
    answers->count++;
    if (error != NULL) {
        answers->failed++;
        answers->last = *error;
    }
    pthread_cond_signal(&answers->changed);
    pthread_mutex_unlock(&answers->lock);
}

void wait_answers(struct answers *answers, unsigned count)
{
    pthread_mutex_lock(&answers->lock);
    while (answers->count < count) {
        pthread_cond_wait(&answers->changed, &answers->lock);
    }
    pthread_mutex_unlock(&answers->lock);
}

struct store_job job_of(uint64_t number, char id[32], bool ended)
{
    snprintf(id, 32, "digits-%llu", (unsigned long long)number);
    return (struct store_job){.number = number,
                              .id = id,
                              .specification = "{\"model\": \"mlp\"}",
                              .state = ended ? "finished" : "running",
                              .ended = ended,
                              .submitted_wall_ns = 1000 + number};
}

static int count_job(void *context, const struct store_job *job, struct error *error)
{
    struct loaded *loaded = context;
    (void)error;
    if (loaded->count++ == 0) {
        loaded->first = job->number;
    }
    loaded->last = job->number;
    snprintf(loaded->state, sizeof loaded->state, "%s", job->state);
    snprintf(loaded->reason, sizeof loaded->reason, "%s", job->reason);
    return 0;
}

struct loaded load_jobs(struct store *store)
{
    struct loaded loaded = {0};
    assert_int_equal(store_load_jobs(store, count_job, &loaded, NULL), 0);
    return loaded;
}

static int print_request(void *context, const struct store_request *request, struct error *error)
{
    char *text = context;
    size_t length = strlen(text);
    (void)error;
    snprintf(text + length, 256 - length, "%s:%llu:%s:%llu ", request->id,
             (unsigned long long)request->job, request->job_id,
             (unsigned long long)request->made_wall_ns);
    return 0;
}

void load_requests(struct store *store, char text[256])
{
    text[0] = '\0';
    assert_int_equal(store_load_requests(store, print_request, text, NULL), 0);
}

void database_do(const struct place *place, const char *sql)
{
    char path[128];
    sqlite3 *database = NULL;
    snprintf(path, sizeof path, "%s/tidepool.db", place->directory);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(database);
}

void assert_database_is_whole(const struct place *place)
{
    char path[128];
    sqlite3 *database = NULL;
    sqlite3_stmt *check = NULL;
    snprintf(path, sizeof path, "%s/tidepool.db", place->directory);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(database, "PRAGMA integrity_check", -1, &check, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(check), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(check, 0), "ok");
    sqlite3_finalize(check);
    sqlite3_close(database);
}

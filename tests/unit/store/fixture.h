/* fixture.h: a state directory of its own for each test, and what the tests of the store share. */
#ifndef TIDEPOOL_TESTS_STORE_FIXTURE_H
#define TIDEPOOL_TESTS_STORE_FIXTURE_H

#include <pthread.h>

#include "server/store/store.h"

struct place {
    char directory[64];
};

int place_setup(void **state); /* *state becomes a struct place */
int place_teardown(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, place_setup, place_teardown)

struct store *open_or_fail(const struct place *place);

/* Answers of the store, counted. */
struct answers {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned count, failed;
    struct error last;
};
#define ANSWERS_INIT                                                                               \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER                     \
    }
void count_answer(void *context, const struct error *error); /* a store_done; context: answers */
void wait_answers(struct answers *answers, unsigned count);

struct store_job job_of(uint64_t number, char id[32], bool ended);

/* What is in the store: figures of all jobs, texts of the last one. */
struct loaded {
    unsigned count;
    uint64_t first, last;
    char state[32], reason[64];
};
struct loaded load_jobs(struct store *store);

/* All requests, "<id>:<job>:<job id>:<made> …". */
void load_requests(struct store *store, char text[256]);

/* Past the store, as another program would. */
void database_do(const struct place *place, const char *sql);
void assert_database_is_whole(const struct place *place);

#endif

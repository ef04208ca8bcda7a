/* write.h: one queued change, and the writer that commits a group of them. Inside the store only.
 * A write is a kind with the values of its statement in order: texts first, then numbers. */
#ifndef TIDEPOOL_STORE_WRITE_H
#define TIDEPOOL_STORE_WRITE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/base/mailbox.h"
#include "server/store/store.h"

enum write_kind {
    WRITE_NOTHING, /* only wakes the thread */
    WRITE_JOB,
    WRITE_REQUEST, /* only as a part of a job's */
    WRITE_ENDPOINT,
    WRITE_ENDPOINT_GONE,
    WRITE_SETTING,
    WRITE_OVERRIDE,
    WRITE_OVERRIDE_GONE,
    WRITE_ACCOUNT,
    WRITE_KINDS,
};

#define WRITE_TEXTS_MAX 6
#define WRITE_NUMBERS_MAX 6

struct write {
    struct letter letter; /* first: a letter is its write */
    enum write_kind kind;
    char *texts[WRITE_TEXTS_MAX];
    int text_count;
    int64_t numbers[WRITE_NUMBERS_MAX];
    int number_count;
    struct write *with; /* NULL, or committed with it, and what is with that: all or none */
    store_done *done;
    void *context;
};

struct write *write_create(enum write_kind kind, store_done *done, void *context);
void write_destroy(struct write *write);                    /* NULL is fine */
bool write_add_text(struct write *write, const char *text); /* copied; false: no memory */
void write_add_number(struct write *write, uint64_t number);
bool write_copy_job(struct write *write, const struct store_job *job);
bool write_copy_request(struct write *write, const struct store_request *request);
bool write_copy_override(struct write *write, const struct store_override *row);

struct writer;

struct writer *writer_create(sqlite3 *database, struct error *error);
void writer_destroy(struct writer *writer); /* NULL is fine; before the database is closed */
/* All letters in one transaction (one by one, when one of them is refused for itself); calls each
 * one's done and frees it. */
void writer_commit(struct writer *writer, struct letter *letters);
/* Answers each with UNAVAILABLE and frees it. */
void writer_drop(struct letter *letters);

#endif

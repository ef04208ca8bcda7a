/* writer.c: see writer.h. */
#include "server/record/writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/log.h"
#include "server/base/mailbox.h"
#include "server/record/log.h"

#define BLOCK_BYTES (32u << 10)
#define FLUSH_NS UINT64_C(1000000000)
#define SHARE_OF_RUN 2 /* one run has at most this part of the bound */
#define DIRECTORY_MAX 4096
#define NAME_MAX_LENGTH 300 /* of a file in it */

struct block_letter {
    struct letter letter;
    enum record_block kind;
    bool last; /* the thread ends after it */
    struct record_bytes contents;
};

struct record_writer {
    char directory[DIRECTORY_MAX]; /* this and the next three: constant */
    uint64_t bytes_max, epoch;
    struct mailbox *mailbox;
    struct block_letter *goodbye;
    pthread_t thread;
    struct {
        struct record_bytes block;
        uint64_t before_ns, began_ns; /* of the block: last event's time, first event's */
    } control;                        /* the control thread's */
    struct {
        int file;
        uint64_t bytes;
    } own;                    /* the writer's */
    _Atomic uint64_t waiting; /* bytes in letters */
    _Atomic bool ended;       /* nothing more is recorded */
};

static void end(struct record_writer *writer, const char *reason)
{
    if (!atomic_exchange(&writer->ended, true)) {
        log_write(LOG_WARN, "record", "events are recorded no more", "reason=\"%s\"", reason);
    }
}

/* ---- the writer's thread ---- */

static int is_log(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return strncmp(entry->d_name, "events-", 7) == 0 && length > 4 &&
           strcmp(entry->d_name + length - 4, ".log") == 0;
}

/* Names sort by age. */
static void make_room(const struct record_writer *writer)
{
    struct dirent **entries;
    int count = scandir(writer->directory, &entries, is_log, alphasort);
    uint64_t sum = writer->bytes_max / SHARE_OF_RUN; /* this run's own */
    for (int i = count - 1; i >= 0; i--) {
        char path[DIRECTORY_MAX + NAME_MAX_LENGTH];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", writer->directory, entries[i]->d_name);
        sum += stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
        if (sum > writer->bytes_max) {
            unlink(path);
        }
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
}

static void begin_file(struct record_writer *writer)
{
    char path[DIRECTORY_MAX + NAME_MAX_LENGTH];
    make_room(writer);
    snprintf(path, sizeof path, "%s/events-%08" PRIu64 ".log", writer->directory, writer->epoch);
    writer->own.file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (writer->own.file < 0) {
        end(writer, strerror(errno));
    }
}

static void write_all(struct record_writer *writer, const struct record_bytes *block)
{
    size_t done = 0;
    while (done < block->length) {
        ssize_t count = write(writer->own.file, block->data + done, block->length - done);
        if (count < 0 && errno != EINTR) {
            end(writer, strerror(errno));
            writer->own.bytes = UINT64_MAX; /* what follows a hole would be of no use */
            return;
        }
        done += count > 0 ? (size_t)count : 0;
    }
    writer->own.bytes += done;
}

static void write_block(struct record_writer *writer, const struct block_letter *letter)
{
    struct record_bytes block;
    if (writer->own.file < 0 || writer->own.bytes > writer->bytes_max / SHARE_OF_RUN) {
        return;
    }
    if (!record_block_pack(letter->kind, &letter->contents, &block)) {
        end(writer, "no memory");
        return;
    }
    if (writer->own.bytes + block.length > writer->bytes_max / SHARE_OF_RUN) {
        end(writer, "this run has its share of record.max_mib");
        writer->own.bytes = UINT64_MAX;
    } else {
        write_all(writer, &block);
    }
    record_bytes_fini(&block);
}

static void *writer_main(void *arg)
{
    struct record_writer *writer = arg;
    bool last = false;
    pthread_setname_np(pthread_self(), "record");
    begin_file(writer);
    while (!last) {
        struct pollfd wait = {.fd = mailbox_fd(writer->mailbox), .events = POLLIN};
        poll(&wait, 1, -1);
        struct letter *next = mailbox_take(writer->mailbox);
        while (next != NULL) {
            struct block_letter *letter = (struct block_letter *)next;
            next = next->next;
            last = letter->last;
            if (!last) {
                write_block(writer, letter);
            }
            atomic_fetch_sub(&writer->waiting, letter->contents.length);
            record_bytes_fini(&letter->contents);
            free(letter);
        }
    }
    if (writer->own.file >= 0) {
        close(writer->own.file);
    }
    return NULL;
}

/* ---- the control thread ---- */

/* The contents are the letter's from here on. */
static void hand_over(struct record_writer *writer, enum record_block kind,
                      struct record_bytes *contents)
{
    struct block_letter *letter = calloc(1, sizeof *letter);
    if (letter == NULL || contents->failed) {
        end(writer, "no memory");
        free(letter);
        record_bytes_fini(contents);
        return;
    }
    letter->kind = kind;
    letter->contents = *contents;
    *contents = (struct record_bytes){0};
    atomic_fetch_add(&writer->waiting, letter->contents.length);
    mailbox_send(writer->mailbox, &letter->letter);
}

static void block_end(struct record_writer *writer, const struct core *core)
{
    record_hash_write(&writer->control.block, core_hash(core));
    writer->control.before_ns = 0;
    hand_over(writer, RECORD_BLOCK_EVENTS, &writer->control.block);
    if (atomic_load(&writer->waiting) > WRITER_WAITING_MAX) {
        end(writer, "the disk is slow");
    }
}

void record_writer_event(struct record_writer *writer, const struct core *core,
                         const struct core_event *event)
{
    if (writer == NULL || atomic_load(&writer->ended)) {
        return;
    }
    if (writer->control.block.length == 0) {
        writer->control.began_ns = event->time_ns;
    }
    record_event_write(&writer->control.block, event, &writer->control.before_ns);
    if (writer->control.block.length >= BLOCK_BYTES) {
        block_end(writer, core);
    }
}

void record_writer_flush(struct record_writer *writer, const struct core *core, uint64_t now_ns)
{
    if (writer != NULL && !atomic_load(&writer->ended) && writer->control.block.length > 0 &&
        now_ns - writer->control.began_ns >= FLUSH_NS) {
        block_end(writer, core);
    }
}

/* ---- life ---- */

static void writer_free(struct record_writer *writer)
{
    mailbox_destroy(writer->mailbox);
    record_bytes_fini(&writer->control.block);
    free(writer->goodbye);
    free(writer);
}

static int writer_start(struct record_writer *writer, struct error *error)
{
    if (mkdir(writer->directory, 0700) < 0 && errno != EEXIST) {
        return error_set_errno(error, errno, "make '%s' for recorded events", writer->directory);
    }
    int number = pthread_create(&writer->thread, NULL, writer_main, writer);
    return number == 0 ? 0 : error_set_errno(error, number, "start to record events");
}

struct record_writer *record_writer_create(const struct record_options *options,
                                           const struct core_config *config, struct error *error)
{
    struct record_writer *writer = calloc(1, sizeof *writer);
    struct record_head head = {.config = *config, .wall_ns = options->wall_ns};
    struct record_bytes contents = {0};
    if (writer == NULL || strlen(options->directory) >= sizeof writer->directory ||
        (writer->mailbox = mailbox_create()) == NULL ||
        (writer->goodbye = calloc(1, sizeof *writer->goodbye)) == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "record events: no memory, or too long a path");
        goto failed;
    }
    strcpy(writer->directory, options->directory);
    writer->bytes_max = options->bytes_max;
    writer->epoch = config->store_epoch;
    writer->own.file = -1;
    if (writer_start(writer, error) < 0) {
        goto failed;
    }
    record_head_write(&contents, &head);
    hand_over(writer, RECORD_BLOCK_HEADER, &contents);
    return writer;
failed:
    if (writer != NULL) {
        writer_free(writer);
    }
    return NULL;
}

void record_writer_destroy(struct record_writer *writer, const struct core *core)
{
    if (writer == NULL) {
        return;
    }
    if (!atomic_load(&writer->ended) && writer->control.block.length > 0) {
        block_end(writer, core);
    }
    writer->goodbye->last = true;
    mailbox_send(writer->mailbox, &writer->goodbye->letter);
    writer->goodbye = NULL; /* the thread's */
    pthread_join(writer->thread, NULL);
    writer_free(writer);
}

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
#include "server/record/restart.h"

#define BLOCK_BYTES_MAX (32u << 10)
#define BLOCKS_OF_BOUND 32
#define FLUSH_NS UINT64_C(1000000000)
#define PARTS_OF_BOUND 4
#define DIRECTORY_MAX 4096
#define NAME_MAX_LENGTH 300 /* of a file in it */

struct block_letter {
    struct letter letter;
    enum record_block kind;
    uint64_t part; /* of a HEADER: its file's */
    bool last;     /* the thread ends after it */
    struct record_bytes contents;
};

struct record_writer {
    char directory[DIRECTORY_MAX]; /* this and all up to `thread`: constant */
    uint64_t bytes_max, block_bytes, part_bytes, epoch;
    struct mailbox *mailbox;
    struct block_letter *goodbye;
    pthread_t thread;
    struct {
        struct record_bytes block;
        uint64_t before_ns, began_ns; /* of the block: last event's time, first event's */
        struct record_head head;      /* of the part */
        uint64_t events, bytes;       /* of all parts; of this one, not compressed */
        uint64_t wall_offset_ns;      /* wall clock - clock of the events */
        struct record_restart restart;
    } control;                /* the control thread's */
    int file;                 /* the writer's */
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

/* Names sort by age; the present part is not there yet. */
static void make_room(const struct record_writer *writer)
{
    struct dirent **entries;
    int count = scandir(writer->directory, &entries, is_log, alphasort);
    uint64_t sum = writer->part_bytes + 2 * writer->block_bytes; /* the most that it may become */
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

static void file_close(struct record_writer *writer)
{
    if (writer->file >= 0) {
        close(writer->file);
        writer->file = -1;
    }
}

static void file_begin(struct record_writer *writer, uint64_t part)
{
    char name[RECORD_NAME_SIZE], path[DIRECTORY_MAX + NAME_MAX_LENGTH];
    file_close(writer);
    make_room(writer);
    record_name_print(name, writer->epoch, part);
    snprintf(path, sizeof path, "%s/%s", writer->directory, name);
    writer->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (writer->file < 0) {
        end(writer, strerror(errno));
    }
}

/* What follows a hole would be of no use. */
static void write_all(struct record_writer *writer, const struct record_bytes *block)
{
    size_t done = 0;
    while (done < block->length) {
        ssize_t count = write(writer->file, block->data + done, block->length - done);
        if (count < 0 && errno != EINTR) {
            end(writer, strerror(errno));
            file_close(writer);
            return;
        }
        done += count > 0 ? (size_t)count : 0;
    }
}

static void write_block(struct record_writer *writer, const struct block_letter *letter)
{
    struct record_bytes block;
    if (letter->kind == RECORD_BLOCK_HEADER && !atomic_load(&writer->ended)) {
        file_begin(writer, letter->part);
    }
    if (writer->file < 0) {
        return;
    }
    if (!record_block_pack(letter->kind, &letter->contents, &block)) {
        end(writer, "no memory");
        file_close(writer);
        return;
    }
    write_all(writer, &block);
    record_bytes_fini(&block);
}

static void *writer_main(void *arg)
{
    struct record_writer *writer = arg;
    bool last = false;
    pthread_setname_np(pthread_self(), "record");
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
    file_close(writer);
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
    letter->part = writer->control.head.part;
    letter->contents = *contents;
    writer->control.bytes += contents->length + RECORD_BLOCK_HEAD;
    *contents = (struct record_bytes){0};
    atomic_fetch_add(&writer->waiting, letter->contents.length);
    mailbox_send(writer->mailbox, &letter->letter);
}

static void head_hand_over(struct record_writer *writer)
{
    struct record_bytes contents = {0};
    writer->control.bytes = 0;
    record_head_write(&contents, &writer->control.head);
    hand_over(writer, RECORD_BLOCK_HEADER, &contents);
}

static void part_begin(struct record_writer *writer, const struct core *core, uint64_t now_ns)
{
    struct record_bytes contents = {0};
    writer->control.head.part++;
    writer->control.head.config.mode = core_mode_now(core);
    writer->control.head.events = writer->control.events;
    writer->control.head.wall_ns = now_ns + writer->control.wall_offset_ns;
    head_hand_over(writer);
    record_restart_write(&writer->control.restart, core, now_ns, &contents);
    hand_over(writer, RECORD_BLOCK_RESTART, &contents);
}

static void block_end(struct record_writer *writer, const struct core *core)
{
    record_hash_write(&writer->control.block, core_hash(core));
    hand_over(writer, RECORD_BLOCK_EVENTS, &writer->control.block);
    if (atomic_load(&writer->waiting) > WRITER_WAITING_MAX) {
        end(writer, "the disk is slow");
    }
    if (writer->control.bytes >= writer->part_bytes && !atomic_load(&writer->ended)) {
        part_begin(writer, core, writer->control.before_ns);
    }
    writer->control.before_ns = 0;
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
    record_restart_note(&writer->control.restart, core, event);
    writer->control.events++;
    if (writer->control.block.length >= writer->block_bytes) {
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
    record_restart_fini(&writer->control.restart);
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

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct record_writer *record_writer_create(const struct record_options *options,
                                           const struct core_config *config, struct error *error)
{
    struct record_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL || strlen(options->directory) >= sizeof writer->directory ||
        (writer->mailbox = mailbox_create()) == NULL ||
        (writer->goodbye = calloc(1, sizeof *writer->goodbye)) == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "record events: no memory, or too long a path");
        goto failed;
    }
    strcpy(writer->directory, options->directory);
    writer->bytes_max = options->bytes_max;
    writer->block_bytes = least(BLOCK_BYTES_MAX, options->bytes_max / BLOCKS_OF_BOUND);
    writer->part_bytes = options->bytes_max / PARTS_OF_BOUND;
    writer->epoch = config->store_epoch;
    writer->control.head = (struct record_head){.wall_ns = options->wall_ns, .config = *config};
    writer->control.wall_offset_ns = options->wall_ns - options->now_ns;
    writer->file = -1;
    if (writer_start(writer, error) < 0) {
        goto failed;
    }
    head_hand_over(writer);
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

/* control_logs.c: the GetLogs streams: a thread of their own reads what shims keep, since files
 * block; what becomes of the job it asks the control thread, with the follower as the letter. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/control/view.h"
#include "server/outside/log.h"
#include "server/outside/outside.h"
#include "server/rpc/control_logs.h"
#include "server/rpc/control_service.h"
#include "server/shim/record.h"

#define CHUNK_BYTES 65536
#define CHUNKS_A_TURN 16
#define WAITING_BYTES_MAX (1u << 20) /* a client that reads slowly is read for slowly */
#define LOOK_MS 20
#define ASK_NS (100 * NS_PER_MS)

/* What the control thread knows of the job. */
struct job_news {
    char id[128];
    char state_directory[PATH_MAX];
    uint32_t runs;
    uint64_t dropped; /* of the last run */
    bool run_over, ended;
};

struct follower {
    struct control_call letter; /* first; on its way to the control thread, or to ours */
    struct follower *next;      /* ours */
    struct control_service *service;
    struct exchange exchange;
    char *job;
    bool follow;
    uint32_t from_run; /* asked for; 0: the first */
    uint32_t run;      /* that is read; 0: none yet */
    bool run_told;     /* its end was sent */
    uint64_t offset, tail_bytes;
    struct job_news news;
    struct error error; /* of the question */
    struct log_reader reader;
    uint64_t dropped; /* of the run that is read, when it is over */
    uint64_t asked_ns;
    _Atomic bool cancelled; /* set on a network thread */
};

struct logs {
    struct mailbox *mailbox;
    pthread_t thread;
    bool started;
    _Atomic bool closing, stopping;
    struct letter close, stop;  /* only wake the thread */
    struct follower *followers; /* the thread's */
};

/* ---- asking, on the control thread ------------------------------------------------------------
 */

static int news_read(struct control *control, const char *name, struct job_news *ret_news,
                     struct error *error)
{
    struct control_status status;
    struct control_job job;
    size_t index = 0;
    int result = control_job_find(control, name, &index, error);
    if (result < 0) {
        return result;
    }
    control_status(control, &status);
    control_job_at(control, index, &job);
    if (job.outside.command == NULL) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "job '%s' runs in the server, whose own log is all that there is", job.id);
    }
    *ret_news = (struct job_news){
        .runs = job.outside.runs,
        .dropped = job.outside.log_dropped,
        .run_over = job.outside.run_over,
        .ended = job.state == CONTROL_JOB_FINISHED || job.state == CONTROL_JOB_FAILED ||
                 job.state == CONTROL_JOB_CANCELLED,
    };
    snprintf(ret_news->id, sizeof ret_news->id, "%s", job.id);
    snprintf(ret_news->state_directory, sizeof ret_news->state_directory, "%s",
             status.state_directory);
    return 0;
}

static void run_ask(struct control *control, struct control_call *letter)
{
    struct follower *follower = (struct follower *)letter;
    (void)news_read(control, follower->job, &follower->news, &follower->error);
    mailbox_send(follower->service->logs->mailbox, &follower->letter.letter);
}

static void ask(struct follower *follower)
{
    follower->asked_ns = clock_now_ns();
    control_post(follower->service->control, &follower->letter);
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static bool is_over(const struct follower *follower)
{
    return follower->run < follower->news.runs || follower->news.run_over;
}

static void run_begin(struct follower *follower, uint32_t run)
{
    char folder[PATH_MAX] = "";
    struct shim_record record;
    log_reader_fini(&follower->reader);
    (void)outside_run_folder(follower->news.state_directory, follower->news.id, run, folder,
                             sizeof folder);
    log_reader_init(&follower->reader, folder);
    follower->run = run;
    follower->dropped = record_read(folder, &record, NULL) == 0 ? record.log_dropped : 0;
    if (follower->tail_bytes > 0) {
        uint64_t size = log_size(folder);
        uint64_t tail = follower->tail_bytes < size ? follower->tail_bytes : size;
        follower->offset = follower->dropped + size - tail;
        follower->tail_bytes = 0;
    }
}

static int send_chunk(struct follower *follower, uint64_t offset, const void *data, size_t length,
                      bool run_ended)
{
    Tidepool__V1__LogChunk chunk = TIDEPOOL__V1__LOG_CHUNK__INIT;
    chunk.run = follower->run;
    chunk.offset = offset;
    chunk.data = (ProtobufCBinaryData){length, (void *)(uintptr_t)data};
    chunk.run_ended = run_ended;
    return exchange_send(&follower->exchange, &chunk.base);
}

/* 1: there may be more now; 0: all of it is sent; negative: the client is gone. */
static int run_read(struct follower *follower)
{
    static unsigned char bytes[CHUNK_BYTES]; /* the thread's */
    for (int i = 0; i < CHUNKS_A_TURN; i++) {
        uint64_t offset = 0, dropped = follower->run == follower->news.runs ? follower->news.dropped
                                                                            : follower->dropped;
        if (exchange_waiting_bytes(&follower->exchange) > WAITING_BYTES_MAX) {
            return 1;
        }
        dropped = dropped > follower->dropped ? dropped : follower->dropped;
        size_t length = log_reader_read(&follower->reader, dropped, bytes, sizeof bytes, &offset);
        if (length == 0) {
            return 0;
        }
        size_t skip = offset + length <= follower->offset ? length
                      : offset < follower->offset         ? (size_t)(follower->offset - offset)
                                                          : 0;
        if (skip < length &&
            send_chunk(follower, offset + skip, bytes + skip, length - skip, false) < 0) {
            return -1;
        }
    }
    return 1;
}

/* ---- one look ---------------------------------------------------------------------------------
 */

static void follower_end(struct follower *follower, enum error_code code, const char *text)
{
    exchange_finish(&follower->exchange, code, text);
    log_reader_fini(&follower->reader);
    free(follower->job);
    free(follower);
}

/* The run that is read is over and read to its end. False: the stream is. */
static bool run_next(struct follower *follower)
{
    if (follower->run > 0 && send_chunk(follower, follower->reader.offset, "", 0, true) < 0) {
        return false;
    }
    if (follower->run < follower->news.runs) {
        follower->offset = 0;
        run_begin(follower, follower->run + 1);
        return true;
    }
    follower->run_told = true;
    return follower->follow && !follower->news.ended;
}

/* False: it is ended. */
static bool follower_look(struct follower *follower, bool fresh)
{
    if (atomic_load(&follower->cancelled)) {
        follower_end(follower, ERROR_CANCELLED, NULL);
        return false;
    }
    if (follower->error.code != ERROR_NONE) {
        follower_end(follower, follower->error.code, follower->error.text);
        return false;
    }
    /* Over before it was read to its end: only then that is the end. */
    bool over = fresh && is_over(follower);
    int read = follower->run > 0 && !follower->run_told ? run_read(follower) : 0;
    bool goes_on = read >= 0;
    if (follower->run_told && follower->run < follower->news.runs) {
        follower->run_told = false;
        follower->offset = 0;
        run_begin(follower, follower->run + 1);
    } else if (read == 0 && over && !follower->run_told && follower->run > 0) {
        goes_on = run_next(follower);
    } else if (read == 0 && fresh && !follower->follow && !over && follower->run > 0) {
        goes_on = false;
    } else if (fresh && follower->news.ended && (follower->run == 0 || follower->run_told)) {
        goes_on = false;
    } else if (fresh && follower->run == 0 && !follower->follow) {
        goes_on = false; /* nothing was ever written */
    }
    if (!goes_on) {
        follower_end(follower, ERROR_NONE, NULL);
    }
    return goes_on;
}

static void first_run(struct follower *follower)
{
    if (follower->run == 0 && follower->news.runs > 0 && follower->error.code == ERROR_NONE) {
        uint32_t runs = follower->news.runs;
        uint32_t oldest = runs > OUTSIDE_RUNS_KEPT ? runs - OUTSIDE_RUNS_KEPT + 1 : 1;
        uint32_t first = follower->tail_bytes > 0 ? runs : follower->from_run;
        first = first < oldest ? oldest : first;
        if (first <= follower->news.runs) {
            run_begin(follower, first);
        }
    }
}

/* ---- the thread -------------------------------------------------------------------------------
 */

static void answers_take(struct logs *logs)
{
    struct letter *letter = mailbox_take(logs->mailbox);
    while (letter != NULL) {
        struct letter *next = letter->next;
        if (letter != &logs->close && letter != &logs->stop) {
            struct follower *follower = (struct follower *)letter;
            first_run(follower);
            if (follower_look(follower, true)) {
                follower->next = logs->followers;
                logs->followers = follower;
            }
        }
        letter = next;
    }
}

static void followers_end(struct logs *logs)
{
    while (logs->followers != NULL) {
        struct follower *follower = logs->followers;
        logs->followers = follower->next;
        follower_end(follower, ERROR_UNAVAILABLE, "the server stops");
    }
}

static void followers_look(struct logs *logs)
{
    uint64_t now_ns = clock_now_ns();
    for (struct follower **link = &logs->followers; *link != NULL;) {
        struct follower *follower = *link;
        struct follower *next = follower->next;
        if (!follower_look(follower, false)) {
            *link = next;
        } else if (now_ns - follower->asked_ns >= ASK_NS) {
            *link = next; /* its letter is on its way */
            ask(follower);
        } else {
            link = &follower->next;
        }
    }
}

static void *logs_main(void *arg)
{
    struct logs *logs = arg;
    (void)pthread_setname_np(pthread_self(), "logs");
    while (!atomic_load(&logs->stopping)) {
        struct pollfd box = {.fd = mailbox_fd(logs->mailbox), .events = POLLIN};
        (void)poll(&box, 1, logs->followers != NULL ? LOOK_MS : -1);
        answers_take(logs);
        if (atomic_load(&logs->closing)) {
            followers_end(logs);
        }
        followers_look(logs);
    }
    answers_take(logs);
    followers_end(logs);
    return NULL;
}

/* ---- the handler's half -----------------------------------------------------------------------
 */

static void on_cancel(void *arg)
{
    struct follower *follower = arg;
    atomic_store(&follower->cancelled, true);
}

void logs_open(struct control_service *service, struct exchange exchange,
               const ProtobufCMessage *message)
{
    const Tidepool__V1__GetLogsRequest *request = (const void *)message;
    struct follower *follower = calloc(1, sizeof *follower);
    if (follower == NULL || (follower->job = strdup(request->job)) == NULL) {
        free(follower);
        exchange_finish(&exchange, ERROR_RESOURCE_EXHAUSTED, "no memory for the call");
        return;
    }
    follower->letter.run = run_ask;
    follower->service = service;
    follower->exchange = exchange;
    follower->follow = request->follow;
    follower->from_run = request->run;
    follower->offset = request->run > 0 ? request->offset : 0;
    follower->tail_bytes = request->run == 0 && request->offset == 0 ? request->tail_bytes : 0;
    follower->reader.fd = -1;
    exchange_on_cancel(&exchange, on_cancel, follower);
    ask(follower);
}

/* ---- life -------------------------------------------------------------------------------------
 */

struct logs *logs_create(struct error *error)
{
    struct logs *logs = calloc(1, sizeof *logs);
    int number = 0;
    if (logs != NULL && (logs->mailbox = mailbox_create()) != NULL) {
        number = pthread_create(&logs->thread, NULL, logs_main, logs);
        logs->started = number == 0;
    }
    if (logs == NULL || !logs->started) {
        if (number != 0) {
            error_set_errno(error, number, "start the thread of logs");
        } else {
            error_set(error, ERROR_RESOURCE_EXHAUSTED, "start the thread of logs: no memory");
        }
        logs_destroy(logs);
        return NULL;
    }
    return logs;
}

void logs_close(struct logs *logs)
{
    if (!atomic_exchange(&logs->closing, true)) {
        mailbox_send(logs->mailbox, &logs->close);
    }
}

void logs_destroy(struct logs *logs)
{
    if (logs == NULL) {
        return;
    }
    if (logs->started) {
        atomic_store(&logs->stopping, true);
        mailbox_send(logs->mailbox, &logs->stop);
        (void)pthread_join(logs->thread, NULL);
    }
    mailbox_destroy(logs->mailbox);
    free(logs);
}

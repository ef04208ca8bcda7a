#include "server/outside/outside.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/outside/internal.h"

/* ---- the thread --------------------------------------------------------------------------------
 */

static struct supervisor **supervisor_link(struct outside *outside, uint64_t job)
{
    struct supervisor **link = &outside->supervisors;
    while (*link != NULL && (*link)->job != job) {
        link = &(*link)->next;
    }
    return link;
}

static void supervisor_remove(struct supervisor **link)
{
    struct supervisor *supervisor = *link;
    *link = supervisor->next;
    if (supervisor->client != NULL) {
        (void)shim_client_close(supervisor->client);
    }
    supervisor_destroy(supervisor);
}

/* A new run of a job whose last one was forgotten. */
static struct supervisor *supervisor_add(struct outside *outside, const struct order *order)
{
    struct supervisor *supervisor =
        supervisor_create(outside, order->lease.job, order->lease.run, order->lease.id);
    if (supervisor != NULL) {
        supervisor->next = outside->supervisors;
        outside->supervisors = supervisor;
        return supervisor;
    }
    struct outside_event event = {.kind = OUTSIDE_NOT_STARTED,
                                  .job = order->lease.job,
                                  .run = order->lease.run,
                                  .text = "no memory"};
    outside->options.notify(outside->options.context, &event);
    return NULL;
}

static void order_carry_out(struct outside *outside, const struct order *order)
{
    struct supervisor **link = supervisor_link(outside, order->lease.job);
    struct supervisor *supervisor = *link;
    switch (order->kind) {
    case ORDER_START:
        if (supervisor == NULL && (supervisor = supervisor_add(outside, order)) != NULL) {
            supervisor_start(supervisor, order);
        }
        break;
    case ORDER_FIND:
        if (supervisor == NULL && (supervisor = supervisor_add(outside, order)) != NULL) {
            supervisor_find(supervisor);
        }
        break;
    case ORDER_FORGET:
        if (supervisor != NULL) {
            supervisor_remove(link);
        }
        break;
    case ORDER_STOP:
        outside->stopping = true;
        break;
    default:
        if (supervisor != NULL) { /* else it is over and forgotten: nobody waits for an answer */
            supervisor_order(supervisor, order);
        }
        break;
    }
}

static void orders_take(struct outside *outside)
{
    struct letter *letter = mailbox_take(outside->mailbox);
    while (letter != NULL) {
        struct letter *next = letter->next;
        order_carry_out(outside, (struct order *)letter);
        order_destroy((struct order *)letter);
        letter = next;
    }
}

static int wait_ms(uint64_t next_ns, uint64_t now_ns)
{
    if (next_ns == UINT64_MAX) {
        return -1;
    }
    uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    return wait_ns > 60 * NS_PER_S ? 60000 : (int)((wait_ns + NS_PER_MS - 1) / NS_PER_MS);
}

/* The mailbox first, then the supervisors in their order; NULL: no memory. */
static struct pollfd *poll_list(const struct outside *outside, size_t *ret_count)
{
    size_t count = 1;
    for (const struct supervisor *supervisor = outside->supervisors; supervisor != NULL;
         supervisor = supervisor->next) {
        count += 2;
    }
    struct pollfd *list = calloc(count, sizeof *list);
    if (list != NULL) {
        struct pollfd *at = list;
        *at++ = (struct pollfd){.fd = mailbox_fd(outside->mailbox), .events = POLLIN};
        for (const struct supervisor *supervisor = outside->supervisors; supervisor != NULL;
             supervisor = supervisor->next) {
            *at++ = (struct pollfd){.fd = supervisor_fd(supervisor), .events = POLLIN};
            *at++ = (struct pollfd){.fd = ranks_fd(supervisor), .events = POLLIN};
        }
    }
    *ret_count = count;
    return list;
}

static void turn(struct outside *outside)
{
    uint64_t now_ns = clock_now_ns(), next_ns = UINT64_MAX;
    size_t count = 0;
    for (struct supervisor *supervisor = outside->supervisors; supervisor != NULL;
         supervisor = supervisor->next) {
        uint64_t due_ns = supervisor_turn(supervisor, now_ns);
        next_ns = due_ns < next_ns ? due_ns : next_ns;
    }
    struct pollfd *list = poll_list(outside, &count);
    if (list == NULL) {
        (void)poll(NULL, 0, 100);
        orders_take(outside);
        return;
    }
    if (poll(list, count, wait_ms(next_ns, now_ns)) > 0) {
        const struct pollfd *at = list + 1;
        for (struct supervisor *supervisor = outside->supervisors; supervisor != NULL;
             supervisor = supervisor->next) {
            if ((at++)->revents != 0) {
                supervisor_ready(supervisor);
            }
            if ((at++)->revents != 0) {
                ranks_ready(supervisor);
            }
        }
        if (list[0].revents != 0) {
            orders_take(outside);
        }
    }
    free(list);
}

static void *outside_main(void *arg)
{
    struct outside *outside = arg;
    (void)pthread_setname_np(pthread_self(), "outside");
    while (!outside->stopping) {
        turn(outside);
    }
    return NULL;
}

/* ---- orders ------------------------------------------------------------------------------------
 */

void order_destroy(struct order *order)
{
    if (order != NULL) {
        free(order->text);
        free(order->id);
        free(order->devices);
        free(order->cpus);
        free(order);
    }
}

static struct order *order_create(enum order_kind kind, uint64_t job)
{
    struct order *order = calloc(1, sizeof *order);
    if (order != NULL) {
        order->kind = kind;
        order->lease.job = job;
    }
    return order;
}

static int order_send(struct outside *outside, struct order *order)
{
    if (order == NULL) {
        log_write(LOG_ERROR, "outside", "order lost", "reason=\"no memory\"");
        return -(int)ERROR_RESOURCE_EXHAUSTED;
    }
    mailbox_send(outside->mailbox, &order->letter);
    return 0;
}

int outside_start(struct outside *outside, const struct outside_lease *lease,
                  const char *specification)
{
    struct order *order = order_create(ORDER_START, lease->job);
    if (order != NULL) {
        order->lease = *lease;
        order->lease.id = order->id = strdup(lease->id);
        order->lease.devices = order->devices = strdup(lease->devices);
        order->lease.cpus = order->cpus = strdup(lease->cpus);
        order->text = strdup(specification);
        if (order->id == NULL || order->devices == NULL || order->cpus == NULL ||
            order->text == NULL) {
            order_destroy(order);
            order = NULL;
        }
    }
    return order_send(outside, order);
}

int outside_find(struct outside *outside, uint64_t job, const char *id, uint32_t run)
{
    struct order *order = order_create(ORDER_FIND, job);
    if (order != NULL) {
        order->lease.run = run;
        order->lease.id = order->id = strdup(id);
        if (order->id == NULL) {
            order_destroy(order);
            order = NULL;
        }
    }
    return order_send(outside, order);
}

static int order_tagged(struct outside *outside, enum order_kind kind, uint64_t job, uint64_t tag)
{
    struct order *order = order_create(kind, job);
    if (order != NULL) {
        order->tag = tag;
    }
    return order_send(outside, order);
}

int outside_freeze(struct outside *outside, uint64_t job, uint64_t tag)
{
    return order_tagged(outside, ORDER_FREEZE, job, tag);
}

int outside_pause(struct outside *outside, uint64_t job, uint64_t tag)
{
    return order_tagged(outside, ORDER_PAUSE, job, tag);
}

int outside_thaw(struct outside *outside, uint64_t job, uint64_t tag)
{
    return order_tagged(outside, ORDER_THAW, job, tag);
}

int outside_signal(struct outside *outside, uint64_t job, uint64_t tag, int signal,
                   enum outside_reach reach)
{
    struct order *order = order_create(ORDER_SIGNAL, job);
    if (order != NULL) {
        order->tag = tag;
        order->signal = signal;
        order->reach = reach;
    }
    return order_send(outside, order);
}

int outside_kill(struct outside *outside, uint64_t job, uint64_t grace_ns, uint64_t bound_ns)
{
    struct order *order = order_create(ORDER_KILL, job);
    if (order != NULL) {
        order->grace_ns = grace_ns;
        order->bound_ns = bound_ns;
    }
    return order_send(outside, order);
}

int outside_notify(struct outside *outside, uint64_t job, const struct outside_notice *notice)
{
    struct order *order = order_create(ORDER_NOTICE, job);
    if (order != NULL) {
        order->notice = *notice;
        order->notice.devices = order->devices = strdup(notice->devices);
        order->notice.reason = order->text = strdup(notice->reason);
        if (order->devices == NULL || order->text == NULL) {
            order_destroy(order);
            order = NULL;
        }
    }
    return order_send(outside, order);
}

int outside_forget(struct outside *outside, uint64_t job)
{
    return order_tagged(outside, ORDER_FORGET, job, 0);
}

/* ---- life --------------------------------------------------------------------------------------
 */

struct outside *outside_create(const struct outside_options *options, struct error *error)
{
    struct outside *outside = calloc(1, sizeof *outside);
    if (outside == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "keep outside jobs: no memory");
        return NULL;
    }
    outside->options = *options;
    outside->mailbox = mailbox_create();
    outside->stop = order_create(ORDER_STOP, 0);
    outside->state_directory = strdup(options->state_directory);
    int number = 0;
    if (outside->mailbox != NULL && outside->state_directory != NULL && outside->stop != NULL) {
        number = pthread_create(&outside->thread, NULL, outside_main, outside);
        outside->started = number == 0;
    }
    if (!outside->started) {
        if (number != 0) {
            error_set_errno(error, number, "keep outside jobs in '%s'", options->state_directory);
        } else {
            error_set(error, ERROR_RESOURCE_EXHAUSTED, "keep outside jobs: no memory");
        }
        outside_destroy(outside);
        return NULL;
    }
    return outside;
}

void outside_destroy(struct outside *outside)
{
    if (outside == NULL) {
        return;
    }
    if (outside->started) {
        mailbox_send(outside->mailbox, &outside->stop->letter);
        outside->stop = NULL; /* the thread's */
        (void)pthread_join(outside->thread, NULL);
    }
    order_destroy(outside->stop);
    while (outside->supervisors != NULL) {
        struct supervisor *supervisor = outside->supervisors;
        outside->supervisors = supervisor->next;
        supervisor_destroy(supervisor);
    }
    if (outside->mailbox != NULL) {
        struct letter *letter = mailbox_take(outside->mailbox);
        while (letter != NULL) {
            struct letter *next = letter->next;
            order_destroy((struct order *)letter);
            letter = next;
        }
    }
    mailbox_destroy(outside->mailbox);
    free(outside->state_directory);
    free(outside);
}

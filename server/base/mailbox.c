#include "server/base/mailbox.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A stack that senders push and the owner empties whole; reversing it gives the order sent. */
struct mailbox {
    _Atomic(struct letter *) newest;
    int fd;
};

struct mailbox *mailbox_create(void)
{
    struct mailbox *mailbox = calloc(1, sizeof(*mailbox));
    if (mailbox == NULL) {
        return NULL;
    }
    mailbox->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mailbox->fd < 0) {
        free(mailbox);
        return NULL;
    }
    return mailbox;
}

void mailbox_destroy(struct mailbox *mailbox)
{
    if (mailbox != NULL) {
        (void)close(mailbox->fd);
        free(mailbox);
    }
}

int mailbox_fd(const struct mailbox *mailbox)
{
    return mailbox->fd;
}

/* `newest_sent` … `oldest_sent` is a list from the newest to the oldest. */
static void stack_push(struct mailbox *mailbox, struct letter *newest_sent,
                       struct letter *oldest_sent)
{
    struct letter *newest = atomic_load_explicit(&mailbox->newest, memory_order_relaxed);
    do {
        oldest_sent->next = newest;
    } while (!atomic_compare_exchange_weak_explicit(&mailbox->newest, &newest, newest_sent,
                                                    memory_order_acq_rel, memory_order_relaxed));
    if (newest == NULL) {
        /* EAGAIN means the counter is full, so the owner is awake anyway. */
        (void)!write(mailbox->fd, &(uint64_t){1}, sizeof(uint64_t));
    }
}

void mailbox_send(struct mailbox *mailbox, struct letter *letter)
{
    stack_push(mailbox, letter, letter);
}

void mailbox_send_all(struct mailbox *mailbox, struct letter *first)
{
    struct letter *newest = NULL;
    for (struct letter *letter = first, *next; letter != NULL; letter = next) {
        next = letter->next;
        letter->next = newest;
        newest = letter;
    }
    if (newest != NULL) {
        stack_push(mailbox, newest, first);
    }
}

struct letter *mailbox_take(struct mailbox *mailbox)
{
    struct letter *letter, *oldest = NULL;
    uint64_t wakeups;
    /* Clear first: a letter that comes after the exchange finds an empty box and wakes again. */
    (void)!read(mailbox->fd, &wakeups, sizeof(wakeups));
    letter = atomic_exchange_explicit(&mailbox->newest, NULL, memory_order_acq_rel);
    while (letter != NULL) {
        struct letter *next = letter->next;
        letter->next = oldest;
        oldest = letter;
        letter = next;
    }
    return oldest;
}

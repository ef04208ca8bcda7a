/* mailbox.h: the one way for a thread to tell another something: a queue and an eventfd.
 * Letters: intrusive; the sender allocates, the receiver owns them from mailbox_take on.
 * Bound:   none here; each kind of letter is bounded by the objects that can send it, and the
 *          queue that feeds it (endpoint queue, connection streams) has a capacity.
 * Thread:  mailbox_send from any thread; take, fd and destroy from the owner only. */
#ifndef TIDEPOOL_BASE_MAILBOX_H
#define TIDEPOOL_BASE_MAILBOX_H

struct letter {
    struct letter *next;
};

struct mailbox;

struct mailbox *mailbox_create(void);          /* NULL: no memory or no descriptor */
void mailbox_destroy(struct mailbox *mailbox); /* NULL is fine; letters inside are not freed */
int mailbox_fd(const struct mailbox *mailbox); /* readable when there may be letters */
/* Wakes the owner only when the box was empty: a burst costs one write. Never blocks. */
void mailbox_send(struct mailbox *mailbox, struct letter *letter);
/* Several at once, in their order (a list by `next`): they cost one wakeup together. */
void mailbox_send_all(struct mailbox *mailbox, struct letter *first);
/* All letters in the order they were sent (a list by `next`), or NULL. Clears the descriptor. */
struct letter *mailbox_take(struct mailbox *mailbox);

#endif

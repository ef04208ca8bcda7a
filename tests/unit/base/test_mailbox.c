#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/base/mailbox.h"

#define SENDERS 4
#define LETTERS_EACH 20000

struct numbered {
    struct letter letter;
    unsigned sender, number;
};

static int readable(struct mailbox *mailbox)
{
    struct pollfd wait = {.fd = mailbox_fd(mailbox), .events = POLLIN};
    return poll(&wait, 1, 0);
}

static void letters_come_in_the_order_they_were_sent(void **state)
{
    struct mailbox *mailbox = mailbox_create();
    struct numbered letters[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
    unsigned expected = 1;
    (void)state;
    assert_int_equal(readable(mailbox), 0);
    for (size_t i = 0; i < 3; i++) {
        mailbox_send(mailbox, &letters[i].letter);
    }
    assert_int_equal(readable(mailbox), 1);
    for (struct letter *at = mailbox_take(mailbox); at != NULL; at = at->next) {
        assert_int_equal(((struct numbered *)at)->number, expected++);
    }
    assert_int_equal(expected, 4);
    assert_int_equal(readable(mailbox), 0);
    assert_null(mailbox_take(mailbox));
    mailbox_destroy(mailbox);
}

struct sender {
    struct mailbox *mailbox;
    unsigned index;
    struct numbered *letters;
};

static void *send_all(void *arg)
{
    struct sender *sender = arg;
    for (unsigned i = 0; i < LETTERS_EACH; i++) {
        sender->letters[i] = (struct numbered){.sender = sender->index, .number = i};
        mailbox_send(sender->mailbox, &sender->letters[i].letter);
    }
    return NULL;
}

/* The receiver only looks when the descriptor is readable: a lost wakeup would hang the test. */
static void no_letter_and_no_wakeup_is_lost_between_threads(void **state)
{
    struct mailbox *mailbox = mailbox_create();
    struct sender senders[SENDERS];
    pthread_t threads[SENDERS];
    unsigned next[SENDERS] = {0};
    unsigned received = 0;
    (void)state;
    for (unsigned i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){mailbox, i, calloc(LETTERS_EACH, sizeof(struct numbered))};
        assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
    }
    while (received < SENDERS * LETTERS_EACH) {
        struct pollfd wait = {.fd = mailbox_fd(mailbox), .events = POLLIN};
        assert_int_equal(poll(&wait, 1, 10000), 1);
        for (struct letter *at = mailbox_take(mailbox); at != NULL; at = at->next) {
            struct numbered *letter = (struct numbered *)at;
            assert_int_equal(letter->number, next[letter->sender]);
            next[letter->sender]++;
            received++;
        }
    }
    for (unsigned i = 0; i < SENDERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        free(senders[i].letters);
    }
    mailbox_destroy(mailbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_come_in_the_order_they_were_sent),
        cmocka_unit_test(no_letter_and_no_wakeup_is_lost_between_threads),
    };
    return cmocka_run_group_tests_name("base/mailbox", tests, NULL, NULL);
}

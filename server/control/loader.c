#include "server/control/loader.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "server/base/mailbox.h"

struct loader {
    struct control *control;
    struct mailbox *mailbox;
    pthread_t thread;
    _Atomic bool stopping;
};

static void drop_all(struct letter *letters)
{
    while (letters != NULL) {
        struct loader_task *task = (struct loader_task *)letters;
        letters = letters->next;
        task->drop(task);
    }
}

static void *loader_main(void *arg)
{
    struct loader *loader = arg;
    struct pollfd pollfd = {.fd = mailbox_fd(loader->mailbox), .events = POLLIN};
    pthread_setname_np(pthread_self(), "loader");
    while (!atomic_load(&loader->stopping)) {
        struct letter *letters = mailbox_take(loader->mailbox);
        if (letters == NULL) {
            poll(&pollfd, 1, -1);
        }
        while (letters != NULL && !atomic_load(&loader->stopping)) {
            struct loader_task *task = (struct loader_task *)letters;
            letters = letters->next;
            task->work(task);
            control_post(loader->control, &task->call);
        }
        drop_all(letters);
    }
    return NULL;
}

struct loader *loader_create(struct control *control, struct error *error)
{
    struct loader *loader = calloc(1, sizeof *loader);
    if (loader != NULL) {
        loader->control = control;
        loader->mailbox = mailbox_create();
    }
    if (loader == NULL || loader->mailbox == NULL) {
        free(loader);
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "start the loader: no memory or descriptor");
        return NULL;
    }
    int number = pthread_create(&loader->thread, NULL, loader_main, loader);
    if (number != 0) {
        error_set_errno(error, number, "start the loader's thread");
        mailbox_destroy(loader->mailbox);
        free(loader);
        return NULL;
    }
    return loader;
}

void loader_submit(struct loader *loader, struct loader_task *task)
{
    mailbox_send(loader->mailbox, &task->call.letter);
}

static void ignore(struct loader_task *task)
{
    (void)task;
}

void loader_destroy(struct loader *loader)
{
    if (loader == NULL) {
        return;
    }
    struct loader_task wake = {.work = ignore, .drop = ignore};
    atomic_store(&loader->stopping, true);
    mailbox_send(loader->mailbox, &wake.call.letter);
    pthread_join(loader->thread, NULL);
    drop_all(mailbox_take(loader->mailbox));
    mailbox_destroy(loader->mailbox);
    free(loader);
}

#include "server/device/device.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/device/backend.h"

static const struct device_backend *const backends[] = {&cpu_backend};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void node_name(char *node, size_t size)
{
    if (gethostname(node, size) < 0) {
        (void)strncpy(node, "localhost", size);
    }
    node[size - 1] = '\0';
}

int device_set_discover(const struct device_config *config, struct device_set *ret_set,
                        struct error *error)
{
    int result = 0;
    struct device_set set = {.devices = calloc(DEVICES_MAX, sizeof(struct device))};
    cpu_set_t all, rest;
    if (set.devices == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the device table");
    }
    if (sched_getaffinity(0, sizeof(all), &all) < 0) {
        result = error_set_errno(error, errno, "read this process's affinity mask");
        goto out;
    }
    rest = all;
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        int count = backends[i]->enumerate(config, &rest, set.devices + set.count,
                                           DEVICES_MAX - set.count, error);
        if (count < 0) {
            result = count;
            goto out;
        }
        for (int j = 0; j < count; j++) {
            struct device *device = &set.devices[set.count];
            device->index = set.count++;
            device->backend = backends[i];
            node_name(device->node, sizeof(device->node));
        }
    }
    set.housekeeping = CPU_COUNT(&rest) > 0 ? rest : all;
    *ret_set = set;
    set = (struct device_set){0};
out:
    device_set_destroy(&set);
    return result;
}

void device_set_destroy(struct device_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        set->devices[i].backend->release(&set->devices[i]);
    }
    free(set->devices);
    *set = (struct device_set){0};
}

/* ---- threads ----------------------------------------------------------------------------------
 */

struct thread_start {
    struct device *device;
    enum device_role role;
    void *(*main)(void *);
    void *arg;
};

static void *thread_enter(void *arg)
{
    static const char *const role_names[] = {"serve", "train", "load"};
    struct thread_start start = *(struct thread_start *)arg;
    struct error error = {0};
    char name[16];
    free(arg);
    (void)snprintf(name, sizeof(name), "%s-%u", role_names[start.role], start.device->index);
    (void)pthread_setname_np(pthread_self(), name);
    if (start.device->backend->thread_enter(start.device, start.role, &error) < 0) {
        struct log_text text;
        log_write(LOG_WARN, "device", "thread is not placed as wanted",
                  "device=%s thread=%s why=%s", start.device->id, name,
                  log_quote(&text, error.text));
    }
    return start.main(start.arg);
}

int device_thread_start(struct device *device, enum device_role role, void *(*thread_main)(void *),
                        void *arg, pthread_t *ret_thread, struct error *error)
{
    int number;
    struct thread_start *start = malloc(sizeof(*start));
    if (start == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a thread of device %s",
                         device->id);
    }
    *start = (struct thread_start){device, role, thread_main, arg};
    number = pthread_create(ret_thread, NULL, thread_enter, start);
    if (number != 0) {
        free(start);
        return error_set_errno(error, number, "start a thread on device %s", device->id);
    }
    return 0;
}

/* ---- slices: serving and training share a device ------------------------------------------------
 */

bool device_serving_begin(struct device *device, uint64_t now_ns)
{
    bool slice;
    atomic_store(&device->shared.serving_since_ns, now_ns);
    atomic_store(&device->shared.serving, 1);
    slice = atomic_load(&device->shared.training) != 0;
    if (slice) {
        atomic_fetch_add(&device->shared.slices, 1);
    }
    return slice;
}

void device_serving_end(struct device *device, uint64_t now_ns)
{
    uint64_t since = atomic_load(&device->shared.serving_since_ns);
    atomic_store(&device->shared.serving_since_ns, 0);
    atomic_fetch_add(&device->shared.serving_ns, now_ns > since ? now_ns - since : 0);
    atomic_store(&device->shared.serving, 0);
    if (atomic_load(&device->shared.training_stands) != 0) {
        device_training_wake(device);
    }
}

bool device_training_may_run(struct device *device, const _Atomic uint32_t *abort)
{
    uint64_t start_ns;
    if (atomic_load_explicit(abort, memory_order_acquire) != 0) {
        return false;
    }
    if (atomic_load_explicit(&device->shared.serving, memory_order_acquire) == 0) {
        return true;
    }
    start_ns = clock_now_ns();
    atomic_fetch_add(&device->shared.training_stands, 1);
    for (;;) {
        /* Read the count first: whoever changes a condition after it was looked at also changes
         * the count, and the wait returns at once. */
        uint32_t wakes = atomic_load(&device->shared.training_wakes);
        if (atomic_load(&device->shared.serving) == 0 || atomic_load(abort) != 0) {
            break;
        }
        futex_wait(&device->shared.training_wakes, wakes);
    }
    atomic_fetch_sub(&device->shared.training_stands, 1);
    atomic_fetch_add(&device->shared.training_paused_ns, clock_now_ns() - start_ns);
    return atomic_load(abort) == 0;
}

void device_training_wake(struct device *device)
{
    atomic_fetch_add(&device->shared.training_wakes, 1);
    futex_wake_all(&device->shared.training_wakes);
}

void device_training_begin(struct device *device)
{
    atomic_store(&device->shared.training, 1);
}

void device_training_end(struct device *device)
{
    atomic_store(&device->shared.training, 0);
}

bool device_failed(const struct device *device)
{
    return atomic_load(&device->shared.failed) != 0;
}

void device_set_failed(struct device *device, bool failed)
{
    atomic_store(&device->shared.failed, failed ? 1 : 0);
}

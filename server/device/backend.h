/* backend.h: what a kind of device provides; a shared object can provide one too.
 * Rules:   device_set_discover calls enumerate; everything else is called for one device at a time.
 * Memory:  `memory_allocate` returns a pointer that the device's own work may use; on a CPU device
 *          it is host memory, and copies are memcpy.
 * Stream:  work queued on one stream runs in order; a CPU device runs it in the caller.
 * Errors:  0 or a negative enum error_code; UNAVAILABLE means that the device is lost. */
#ifndef TIDEPOOL_DEVICE_BACKEND_H
#define TIDEPOOL_DEVICE_BACKEND_H

#include "server/device/device.h"

/* Raised when the fields below change; a back-end of another version is refused at load. */
#define DEVICE_BACKEND_VERSION 2

enum device_copy { DEVICE_COPY_TO, DEVICE_COPY_FROM, DEVICE_COPY_WITHIN };

struct device_health {
    bool usable;
    uint32_t speed_percent; /* of what the device can do when nothing slows it */
    const char *reason;     /* a literal; why it is not usable or slow */
};

struct device_backend {
    uint32_t version;
    const char *kind; /* "cpu" */
    /* A thread that is not the device's may give it a short run, at no more than the run costs. */
    bool runs_inline;
    /* Fills at most `room` devices (id, kind, cores, core_count, memory_bytes, backend_data) and
     * takes the cores it uses out of `*free_cores`. Returns how many, or an error. */
    int (*enumerate)(const struct device_config *config, cpu_set_t *free_cores,
                     struct device *devices, uint32_t room, struct error *error);
    void (*release)(struct device *device);
    int (*memory_allocate)(struct device *device, size_t bytes, void **ret_memory,
                           struct error *error);
    void (*memory_free)(struct device *device, void *memory);
    int (*copy)(struct device *device, enum device_copy direction, void *to, const void *from,
                size_t bytes, struct error *error);
    /* Runs before the role's main on its new thread: pins it and sets its scheduling class. */
    int (*thread_enter)(struct device *device, enum device_role role, struct error *error);
    int (*health)(struct device *device, struct device_health *ret_health, struct error *error);
    /* 0 when nothing of a former holder is left on the device; `holder_pids` are processes known
     * to have held it. FAILED_PRECONDITION while something is. */
    int (*verify)(struct device *device, const int *holder_pids, size_t count, struct error *error);
    int (*suspend)(struct device *device, struct error *error); /* NULL: the kind cannot */
    int (*resume)(struct device *device, struct error *error);  /* NULL: the kind cannot */
};

extern const struct device_backend cpu_backend;

#endif

#include "models/onnx/api.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/onnx/message.h"
#include "models/runtime.h"
#include "server/base/log.h"

struct ort_base {
    const void *const *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};

static struct {
    pthread_mutex_t lock;
    char *configured;
    _Atomic bool opened;
    struct onnx_api api; /* constant once `opened` */
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define HOW_TO_GET_ONE                                                                             \
    "; `make deps` puts one under build/onnxruntime, or set onnxruntime in the configuration or "  \
    "TIDEPOOL_ONNXRUNTIME to the path of a libonnxruntime.so of 1.16 or later"

const struct onnx_api *onnx_api(void)
{
    return library.opened ? &library.api : NULL;
}

void onnx_set_library(const char *configured)
{
    pthread_mutex_lock(&library.lock);
    free(library.configured);
    library.configured = configured == NULL ? NULL : strdup(configured);
    pthread_mutex_unlock(&library.lock);
}

int onnx_check(struct ort_status *status, enum error_code code, const char *context,
               struct error *error)
{
    char text[400];
    if (status == NULL) {
        return 0;
    }
    onnx_message_clean(library.api.status_message(status), text, sizeof(text));
    library.api.status_release(status);
    return error_set(error, code, "%s%s%s", context == NULL ? "" : context,
                     context == NULL ? "" : ": ", text);
}

static void on_log(void *context, int level, const char *category, const char *log_id,
                   const char *location, const char *message)
{
    struct log_text quoted;
    char text[sizeof(quoted.text)];
    (void)context;
    (void)log_id;
    (void)location;
    onnx_message_clean(message, text, sizeof(text));
    log_write(level >= ORT_ERROR     ? LOG_ERROR
              : level >= ORT_WARNING ? LOG_WARN
                                     : LOG_DEBUG,
              "onnxruntime", "says", "category=%s text=%s", category, log_quote(&quoted, text));
}

/* The folder onnxruntime/ beside this program, where `make deps` puts the library. */
static void *library_beside_program(char *ret_path, size_t size)
{
    char pattern[4096 + 64];
    ssize_t length = readlink("/proc/self/exe", pattern, 4096);
    glob_t found = {0};
    void *handle = NULL;
    while (length > 0 && pattern[length - 1] != '/') {
        length--;
    }
    if (length <= 0) {
        return NULL;
    }
    (void)snprintf(pattern + length, sizeof(pattern) - (size_t)length,
                   "onnxruntime/libonnxruntime.so*");
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && handle == NULL; i++) {
            handle = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
            (void)snprintf(ret_path, size, "%s", found.gl_pathv[i]);
        }
    }
    globfree(&found);
    return handle;
}

/* A path that somebody chose is the only candidate: another library in its place would surprise. */
static void *library_chosen(const char *path, const char *chosen_by, struct error *error)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        (void)error_set(error, ERROR_FAILED_PRECONDITION, "ONNX Runtime of %s: %s" HOW_TO_GET_ONE,
                        chosen_by, dlerror());
    }
    return handle;
}

static void *library_find(char *ret_path, size_t size, struct error *error)
{
    static const char *const names[] = {"libonnxruntime.so", "libonnxruntime.so.1"};
    const char *chosen = getenv("TIDEPOOL_ONNXRUNTIME");
    void *handle;
    if (library.configured != NULL) {
        (void)snprintf(ret_path, size, "%s", library.configured);
        return library_chosen(library.configured, "the configuration", error);
    }
    if (chosen != NULL && chosen[0] != '\0') {
        (void)snprintf(ret_path, size, "%s", chosen);
        return library_chosen(chosen, "TIDEPOOL_ONNXRUNTIME", error);
    }
    handle = library_beside_program(ret_path, size);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && handle == NULL; i++) {
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        (void)snprintf(ret_path, size, "%s", names[i]);
    }
    if (handle == NULL) {
        (void)error_set(error, ERROR_FAILED_PRECONDITION,
                        "ONNX Runtime was not found beside the server or on the loader's "
                        "path" HOW_TO_GET_ONE);
    }
    return handle;
}

/* Checks the version before a slot is touched: reading past an older table's end is undefined. */
static int table_read(void *handle, const char *path, struct onnx_api *api, struct error *error)
{
    const struct ort_base *(*entry)(void);
    const struct ort_base *base;
    const void *const *slots;
    unsigned major = 0, minor = 0;
    void *symbol = dlsym(handle, "OrtGetApiBase");
    if (symbol == NULL) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "'%s' is not an ONNX Runtime: it has no OrtGetApiBase", path);
    }
    memcpy(&entry, &symbol, sizeof(entry)); /* C has no cast from data to function pointers */
    base = entry();
    api->version = base->get_version();
    if (sscanf(api->version, "%u.%u", &major, &minor) != 2 || major != 1 ||
        minor < ONNX_VERSION_LEAST) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "ONNX Runtime '%s' is version %.32s; 1.%d or a later 1.x is needed", path,
                         api->version, ONNX_VERSION_LEAST);
    }
    slots = base->get_api(ONNX_VERSION_LEAST);
    if (slots == NULL) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "ONNX Runtime '%s' %s does not offer its interface of 1.%d", path,
                         api->version, ONNX_VERSION_LEAST);
    }
#define SLOT_READ(number, name, result, arguments)                                                 \
    memcpy(&api->name, &slots[number], sizeof(api->name));
    ORT_SLOTS(SLOT_READ)
#undef SLOT_READ
    return 0;
}

/* Since 1.29 the library reports its use to its maker, keeps an identifier on disk and starts a
 * thread for it, unless told not to before it is opened. A server says nothing about its clients.
 * Here, because the environment may only be changed while there is one thread. */
__attribute__((constructor)) static void telemetry_forbid(void)
{
    (void)setenv("ORT_DISABLE_TELEMETRY", "1", 0);
    (void)setenv("ORT_TELEMETRY_DISABLED", "1", 0); /* its name in some releases */
}

static int environment_create(struct onnx_api *api, struct error *error)
{
    const char *what = "start ONNX Runtime";
    if (onnx_check(api->env_create(on_log, NULL, ORT_WARNING, "tidepool", &api->env),
                   ERROR_INTERNAL, what, error) < 0 ||
        onnx_check(api->telemetry_disable(api->env), ERROR_INTERNAL, what, error) < 0 ||
        onnx_check(api->memory_create_cpu(ORT_ALLOCATOR_DEVICE, ORT_MEMORY_DEFAULT, &api->memory),
                   ERROR_INTERNAL, what, error) < 0 ||
        onnx_check(api->allocator_default(&api->allocator), ERROR_INTERNAL, what, error) < 0) {
        return -ERROR_INTERNAL;
    }
    return 0;
}

static int library_open(struct error *error)
{
    char path[4096 + 64];
    struct log_text quoted;
    int result;
    void *handle = library_find(path, sizeof(path), error);
    if (handle == NULL) {
        return -ERROR_FAILED_PRECONDITION;
    }
    result = table_read(handle, path, &library.api, error);
    if (result < 0) {
        (void)dlclose(handle);
        return result;
    }
    result = environment_create(&library.api, error);
    if (result < 0) {
        return result; /* not closed: threads of the library may have started */
    }
    library.opened = true;
    log_write(LOG_INFO, "onnxruntime", "opened", "version=%s path=%s", library.api.version,
              log_quote(&quoted, path));
    return 0;
}

int onnx_open(struct error *error)
{
    int result;
    pthread_mutex_lock(&library.lock);
    result = library.opened ? 0 : library_open(error);
    pthread_mutex_unlock(&library.lock);
    return result;
}

/* api.h: ONNX Runtime's C functions, found in a library that is opened at run time.
 * Binary:  the library hands out one table of function pointers; slots keep their number and
 *          their types for ever, so they are named here by number and no header of it is needed.
 * Version: library 1.N has the slots of every version up to N. Only slots of 1.16 are used.
 * Life:    opened once and kept until the process ends: its threads and its environment are the
 *          process's own.
 * Thread:  onnx_api() after a successful onnx_open, from any thread. */
#ifndef TIDEPOOL_MODELS_ONNX_API_H
#define TIDEPOOL_MODELS_ONNX_API_H

#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"

#define ONNX_VERSION_LEAST 16

/* The library's own objects. */
struct ort_status;
struct ort_env;
struct ort_options;
struct ort_session;
struct ort_run_options;
struct ort_value;
struct ort_type;
struct ort_shape;
struct ort_memory;
struct ort_allocator;
struct ort_prepacked;

/* Element types: 1 to 23 equal those inside ONNX files. */
enum ort_element {
    ORT_FLOAT = 1,
    ORT_UINT8 = 2,
    ORT_INT8 = 3,
    ORT_UINT16 = 4,
    ORT_INT16 = 5,
    ORT_INT32 = 6,
    ORT_INT64 = 7,
    ORT_STRING = 8,
    ORT_BOOL = 9,
    ORT_FLOAT16 = 10,
    ORT_DOUBLE = 11,
    ORT_UINT32 = 12,
    ORT_UINT64 = 13,
    ORT_BFLOAT16 = 16,
};

enum ort_code {
    ORT_INVALID_ARGUMENT = 2,
    ORT_NO_SUCH_FILE = 3,
    ORT_NO_MODEL = 4,
    ORT_INVALID_PROTOBUF = 7,
    ORT_NOT_IMPLEMENTED = 9,
    ORT_INVALID_GRAPH = 10,
    ORT_PROVIDER_FAIL = 11,
    ORT_REQUIRES_COMPILATION = 13,
    ORT_DEVICE_RESET = 15,
};

#define ORT_TYPE_TENSOR 1      /* of a value, slot 56 */
#define ORT_SEQUENTIAL 0       /* slot 13 */
#define ORT_ALLOCATOR_DEVICE 0 /* slot 69: memory that the caller manages */
#define ORT_MEMORY_DEFAULT 0

enum ort_level { ORT_VERBOSE, ORT_INFO, ORT_WARNING, ORT_ERROR, ORT_FATAL };
typedef void ort_log_function(void *context, int level, const char *category, const char *log_id,
                              const char *location, const char *message);

/* SLOT(number, name, result, arguments) */
#define ORT_SLOTS(SLOT)                                                                            \
    SLOT(1, status_code, int, (const struct ort_status *))                                         \
    SLOT(2, status_message, const char *, (const struct ort_status *))                             \
    SLOT(93, status_release, void, (struct ort_status *))                                          \
    SLOT(4, env_create, struct ort_status *,                                                       \
         (ort_log_function *, void *, int level, const char *id, struct ort_env **))               \
    SLOT(6, telemetry_disable, struct ort_status *, (const struct ort_env *))                      \
    SLOT(10, options_create, struct ort_status *, (struct ort_options **))                         \
    SLOT(100, options_release, void, (struct ort_options *))                                       \
    SLOT(24, options_threads, struct ort_status *, (struct ort_options *, int))                    \
    SLOT(25, options_inter_threads, struct ort_status *, (struct ort_options *, int))              \
    SLOT(13, options_mode, struct ort_status *, (struct ort_options *, int))                       \
    SLOT(130, options_entry, struct ort_status *,                                                  \
         (struct ort_options *, const char *key, const char *value))                               \
    SLOT(150, options_initializer, struct ort_status *,                                            \
         (struct ort_options *, const char *name, const struct ort_value *))                       \
    SLOT(168, session_from_file, struct ort_status *,                                              \
         (const struct ort_env *, const char *path, const struct ort_options *,                    \
          struct ort_prepacked *, struct ort_session **))                                          \
    SLOT(169, session_from_bytes, struct ort_status *,                                             \
         (const struct ort_env *, const void *bytes, size_t length, const struct ort_options *,    \
          struct ort_prepacked *, struct ort_session **))                                          \
    SLOT(95, session_release, void, (struct ort_session *))                                        \
    SLOT(166, prepacked_create, struct ort_status *, (struct ort_prepacked **))                    \
    SLOT(167, prepacked_release, void, (struct ort_prepacked *))                                   \
    SLOT(30, input_count, struct ort_status *, (const struct ort_session *, size_t *))             \
    SLOT(31, output_count, struct ort_status *, (const struct ort_session *, size_t *))            \
    SLOT(36, input_name, struct ort_status *,                                                      \
         (const struct ort_session *, size_t, struct ort_allocator *, char **))                    \
    SLOT(37, output_name, struct ort_status *,                                                     \
         (const struct ort_session *, size_t, struct ort_allocator *, char **))                    \
    SLOT(33, input_type, struct ort_status *,                                                      \
         (const struct ort_session *, size_t, struct ort_type **))                                 \
    SLOT(34, output_type, struct ort_status *,                                                     \
         (const struct ort_session *, size_t, struct ort_type **))                                 \
    SLOT(9, run, struct ort_status *,                                                              \
         (struct ort_session *, const struct ort_run_options *, const char *const *in_names,       \
          const struct ort_value *const *inputs, size_t in_count, const char *const *out_names,    \
          size_t out_count, struct ort_value **outputs))                                           \
    SLOT(39, run_options_create, struct ort_status *, (struct ort_run_options **))                 \
    SLOT(165, run_options_entry, struct ort_status *,                                              \
         (struct ort_run_options *, const char *key, const char *value))                           \
    SLOT(97, run_options_release, void, (struct ort_run_options *))                                \
    SLOT(41, run_options_severity, struct ort_status *, (struct ort_run_options *, int))           \
    SLOT(46, run_options_terminate, struct ort_status *, (struct ort_run_options *))               \
    SLOT(47, run_options_unset_terminate, struct ort_status *, (struct ort_run_options *))         \
    SLOT(56, type_kind, struct ort_status *, (const struct ort_type *, int *))                     \
    SLOT(55, type_shape, struct ort_status *,                                                      \
         (const struct ort_type *, const struct ort_shape **))                                     \
    SLOT(98, type_release, void, (struct ort_type *))                                              \
    SLOT(60, shape_element, struct ort_status *, (const struct ort_shape *, int *))                \
    SLOT(61, shape_rank, struct ort_status *, (const struct ort_shape *, size_t *))                \
    SLOT(62, shape_dims, struct ort_status *, (const struct ort_shape *, int64_t *, size_t))       \
    SLOT(99, shape_release, void, (struct ort_shape *))                                            \
    SLOT(65, value_shape, struct ort_status *, (const struct ort_value *, struct ort_shape **))    \
    SLOT(50, value_is_tensor, struct ort_status *, (const struct ort_value *, int *))              \
    SLOT(48, value_create, struct ort_status *,                                                    \
         (struct ort_allocator *, const int64_t *dims, size_t rank, int element,                   \
          struct ort_value **))                                                                    \
    SLOT(49, value_over, struct ort_status *,                                                      \
         (const struct ort_memory *, void *data, size_t bytes, const int64_t *dims, size_t rank,   \
          int element, struct ort_value **))                                                       \
    SLOT(51, value_data, struct ort_status *, (struct ort_value *, void **))                       \
    SLOT(252, string_resize, struct ort_status *,                                                  \
         (struct ort_value *, size_t index, size_t bytes, char **))                                \
    SLOT(53, strings_length, struct ort_status *, (const struct ort_value *, size_t *))            \
    SLOT(54, strings_content, struct ort_status *,                                                 \
         (const struct ort_value *, void *, size_t bytes, size_t *offsets, size_t count))          \
    SLOT(96, value_release, void, (struct ort_value *))                                            \
    SLOT(69, memory_create_cpu, struct ort_status *,                                               \
         (int allocator, int memory, struct ort_memory **))                                        \
    SLOT(78, allocator_default, struct ort_status *, (struct ort_allocator **))                    \
    SLOT(76, allocator_free, struct ort_status *, (struct ort_allocator *, void *))

struct onnx_api {
#define ORT_FIELD(number, name, result, arguments) result(*name) arguments;
    ORT_SLOTS(ORT_FIELD)
#undef ORT_FIELD
    const char *version; /* "1.30.0" */
    struct ort_env *env;
    struct ort_memory *memory; /* describes plain memory of this process */
    struct ort_allocator *allocator;
};

const struct onnx_api *onnx_api(void); /* NULL before onnx_open has succeeded */

/* Releases a status. NULL is success: 0. Else the error is set: the library's text cleaned, after
 * `context` (may be NULL: none), with the code given. */
int onnx_check(struct ort_status *status, enum error_code code, const char *context,
               struct error *error);

#endif

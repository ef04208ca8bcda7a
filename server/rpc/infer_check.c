/* A ModelInfer against the signature of its model, in the order of the protocol's table. */
#include <inttypes.h>
#include <stdio.h>

#include "server/rpc/infer_call.h"
#include "server/serve/serve.h"

const char *shown(struct shown_text *buffer, struct wire_text text)
{
    size_t room = sizeof(buffer->text) - sizeof("…");
    size_t length = text.length < room ? text.length : room;
    while (length > 0 && length < text.length && (text.data[length] & 0xC0) == 0x80) {
        length--;
    }
    if (length > 0) {
        memcpy(buffer->text, text.data, length);
    }
    (void)snprintf(buffer->text + length, sizeof(buffer->text) - length, "%s",
                   length < text.length ? "…" : "");
    bool readable = utf8_is_valid((struct wire_text){text.data, length});
    for (size_t i = 0; i < length; i++) {
        if (text.data[i] == '\0' || (!readable && text.data[i] >= 0x80)) {
            buffer->text[i] = '?';
        }
    }
    return buffer->text;
}

static bool texts_equal(struct wire_text a, struct wire_text b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

/* ---- the endpoint -----------------------------------------------------------------------------
 */

static bool all_digits(struct wire_text text)
{
    for (size_t i = 0; i < text.length; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            return false;
        }
    }
    return true;
}

int infer_endpoint_known(struct serve *serve, struct wire_text name, struct wire_text version,
                         struct endpoint **ret_endpoint, struct error *error)
{
    struct shown_text name_text, version_text;
    struct endpoint *endpoint;
    if (!all_digits(version)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "model '%s': version '%s' is not a number of 0 or more",
                         shown(&name_text, name), shown(&version_text, version));
    }
    endpoint = endpoint_find(serve, (const char *)name.data, name.length);
    if (endpoint == NULL) {
        return serve_opened(serve)
                   ? error_set(error, ERROR_NOT_FOUND, "model '%s' is not known here",
                               shown(&name_text, name))
                   : error_set(
                         error, ERROR_UNAVAILABLE,
                         "model '%s' is not known yet: the server is still loading its models",
                         shown(&name_text, name));
    }
    const char *own = endpoint_version(endpoint);
    if (version.length > 0 && !wire_text_is(version, own, strlen(own))) {
        (void)error_set(error, ERROR_NOT_FOUND,
                        "model '%s' has no version %s here; its version is %s",
                        endpoint_name(endpoint), shown(&version_text, version), own);
        endpoint_release(endpoint);
        return -ERROR_NOT_FOUND;
    }
    *ret_endpoint = endpoint;
    return 0;
}

/* ---- names and where the data comes from ------------------------------------------------------
 */

static int twice_check(const struct infer_message *message, struct error *error)
{
    struct shown_text name;
    for (uint32_t i = 1; i < message->input_count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (texts_equal(message->inputs[i].name, message->inputs[j].name)) {
                return error_set(error, ERROR_INVALID_ARGUMENT, "input '%s' comes twice",
                                 shown(&name, message->inputs[i].name));
            }
        }
    }
    for (uint32_t i = 1; i < message->output_count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (texts_equal(message->outputs[i].name, message->outputs[j].name)) {
                return error_set(error, ERROR_INVALID_ARGUMENT, "output '%s' is asked for twice",
                                 shown(&name, message->outputs[i].name));
            }
        }
    }
    return 0;
}

static int typed_check(const struct infer_input *input, struct error *error)
{
    struct shown_text name, type;
    enum datatype datatype =
        datatype_parse((const char *)input->datatype.data, input->datatype.length);
    enum contents_field wanted = contents_field_of(datatype);
    for (uint32_t field = CONTENTS_BOOL; field < CONTENTS_FIELDS; field++) {
        if (input->elements[field] == 0 || datatype == DATATYPE_INVALID || field == wanted) {
            continue; /* an unknown datatype has its own row */
        }
        if (wanted == 0) {
            break;
        }
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "input '%s': datatype %s goes into %s, got %" PRIu32 " elements in %s",
                         shown(&name, input->name), shown(&type, input->datatype),
                         contents_field_name(wanted), input->elements[field],
                         contents_field_name((enum contents_field)field));
    }
    if (datatype != DATATYPE_INVALID && wanted == 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "input '%s': datatype %s has no typed form; send it in "
                         "raw_input_contents",
                         shown(&name, input->name), shown(&type, input->datatype));
    }
    return 0;
}

static int sources_check(const struct infer_message *message, struct error *error)
{
    struct shown_text name;
    for (uint32_t i = 0; i < message->input_count; i++) {
        const struct infer_input *input = &message->inputs[i];
        int result = 0;
        if (message->raw_count > 0 && input->has_contents) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "input '%s' has contents although the request has "
                             "raw_input_contents; send all inputs in one form",
                             shown(&name, input->name));
        }
        if (message->raw_count == 0) {
            result = input->has_contents
                         ? typed_check(input, error)
                         : error_set(error, ERROR_INVALID_ARGUMENT,
                                     "input '%s' has no data, neither in raw_input_contents nor "
                                     "in contents",
                                     shown(&name, input->name));
        }
        if (result < 0) {
            return result;
        }
    }
    if (message->raw_count > 0 && message->raw_count != message->input_count) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "%" PRIu32 " raw_input_contents for %" PRIu32
                         " inputs; one is expected for each",
                         message->raw_count, message->input_count);
    }
    return 0;
}

/* ---- outputs and inputs of the model ----------------------------------------------------------
 */

static int outputs_take(struct infer_call *infer, const struct infer_message *message,
                        const struct model_signature *signature, struct error *error)
{
    struct shown_text name;
    if (message->output_count == 0) {
        infer->output_count = (uint32_t)signature->output_count;
        for (uint32_t i = 0; i < infer->output_count; i++) {
            infer->outputs[i] = (uint8_t)i;
        }
        return 0;
    }
    infer->output_count = message->output_count;
    for (uint32_t i = 0; i < message->output_count; i++) {
        size_t j = 0;
        while (j < signature->output_count &&
               !wire_text_is(message->outputs[i].name, signature->outputs[j].name,
                             strlen(signature->outputs[j].name))) {
            j++;
        }
        if (j == signature->output_count) {
            return error_set(error, ERROR_INVALID_ARGUMENT, "the model has no output '%s'",
                             shown(&name, message->outputs[i].name));
        }
        infer->outputs[i] = (uint8_t)j;
    }
    return 0;
}

/* Where each of the signature's inputs is in the message; -1: missing. */
static uint32_t inputs_match(const struct infer_message *message,
                             const struct model_signature *signature, int *ret_index)
{
    uint32_t found = 0;
    for (size_t i = 0; i < signature->input_count; i++) {
        const char *name = signature->inputs[i].name;
        size_t length = strlen(name);
        ret_index[i] = -1;
        if (i < message->input_count && wire_text_is(message->inputs[i].name, name, length)) {
            ret_index[i] = (int)i; /* most clients keep the model's order */
        }
        for (uint32_t j = 0; j < message->input_count && ret_index[i] < 0; j++) {
            if (wire_text_is(message->inputs[j].name, name, length)) {
                ret_index[i] = (int)j;
            }
        }
        found += ret_index[i] >= 0 ? 1 : 0;
    }
    return found;
}

static int missing_tell(const struct model_signature *signature, const int *index,
                        uint32_t input_count, struct error *error)
{
    char names[256];
    size_t length = 0;
    names[0] = '\0';
    for (size_t i = 0; i < signature->input_count; i++) {
        if (index[i] < 0 && length < sizeof(names)) {
            length += (size_t)snprintf(names + length, sizeof(names) - length, "%s'%s'",
                                       length > 0 ? ", " : "", signature->inputs[i].name);
        }
    }
    return error_set(error, ERROR_INVALID_ARGUMENT,
                     "%" PRIu32 " inputs given, the model takes %zu; missing: %s", input_count,
                     signature->input_count, names);
}

static int inputs_find(const struct infer_message *message, const struct model_signature *signature,
                       int *ret_index, struct error *error)
{
    struct shown_text name;
    uint32_t found = inputs_match(message, signature, ret_index);
    if (found == signature->input_count && found == message->input_count) {
        return 0;
    }
    for (uint32_t i = 0; i < message->input_count; i++) {
        size_t j = 0;
        while (j < signature->input_count && ret_index[j] != (int)i) {
            j++;
        }
        if (j == signature->input_count && message->input_count >= signature->input_count) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "%" PRIu32 " inputs given, the model takes %zu and none is called "
                             "'%s'",
                             message->input_count, signature->input_count,
                             shown(&name, message->inputs[i].name));
        }
    }
    return missing_tell(signature, ret_index, message->input_count, error);
}

/* ---- shapes -----------------------------------------------------------------------------------
 */

static const char *dims_print(struct shape_text *text, const struct infer_input *input)
{
    uint32_t rank = input->rank < TENSOR_RANK_MAX ? input->rank : TENSOR_RANK_MAX;
    return shape_print(text, input->dims, rank);
}

static int batch_take(struct infer_call *infer, const struct infer_message *message,
                      const struct model_signature *signature, const int *index,
                      struct error *error)
{
    const struct infer_input *first = NULL;
    if (signature->batch_max == 0) {
        infer->request.rows = 1;
        return 0;
    }
    for (size_t i = 0; i < signature->input_count; i++) {
        const struct infer_input *input = &message->inputs[index[i]];
        const char *name = signature->inputs[i].name;
        struct shape_text shape;
        if (input->rank == 0 || input->dims[0] < 1) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "input '%s': shape %s has no batch dimension of 1 or more in front",
                             name, dims_print(&shape, input));
        }
        if (input->dims[0] > (int64_t)signature->batch_max) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "input '%s': batch of %" PRId64 " is over the model's maximum of "
                             "%" PRIu32,
                             name, input->dims[0], signature->batch_max);
        }
        if (first != NULL && input->dims[0] != first->dims[0]) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "input '%s' has a batch of %" PRId64 " and input '%s' one of "
                             "%" PRId64,
                             name, input->dims[0], signature->inputs[0].name, first->dims[0]);
        }
        first = first == NULL ? input : first;
    }
    infer->request.rows = first != NULL ? (uint32_t)first->dims[0] : 1;
    return 0;
}

static int datatype_check(const struct infer_input *input, const struct tensor_spec *spec,
                          struct error *error)
{
    struct shown_text type;
    const char *wanted = datatype_name(spec->datatype);
    if (wire_text_is(input->datatype, wanted, strlen(wanted))) {
        return 0;
    }
    return error_set(error, ERROR_INVALID_ARGUMENT, "input '%s': datatype %s expected, got '%s'",
                     spec->name, wanted, shown(&type, input->datatype));
}

static int shape_check(const struct infer_input *input, const struct tensor_spec *spec,
                       bool batched, struct error *error)
{
    uint32_t lead = batched ? 1 : 0;
    bool fits = input->rank == spec->rank + lead && input->rank <= TENSOR_RANK_MAX;
    for (uint32_t d = 0; fits && d < spec->rank; d++) {
        int64_t got = input->dims[d + lead];
        fits = got >= 0 && (spec->dims[d] < 0 || got == spec->dims[d]);
    }
    if (fits) {
        return 0;
    }
    struct shape_text expected, got;
    int64_t dims[TENSOR_RANK_MAX + 1] = {-1};
    memcpy(dims + lead, spec->dims, spec->rank * sizeof(dims[0]));
    return error_set(error, ERROR_INVALID_ARGUMENT,
                     "input '%s': shape %s expected, got %s of %" PRIu32 " dimensions", spec->name,
                     shape_print(&expected, dims, spec->rank + lead), dims_print(&got, input),
                     input->rank);
}

static void tensor_fill(struct tensor *tensor, const struct infer_input *input,
                        enum datatype datatype)
{
    tensor->datatype = datatype;
    tensor->rank = input->rank;
    for (uint32_t d = 0; d < input->rank; d++) {
        tensor->dims[d] = input->dims[d];
    }
}

/* ---- data -------------------------------------------------------------------------------------
 */

#define TYPED_ALIGNMENT UINT64_C(64)

static uint64_t typed_room(const struct infer_input *input, enum datatype datatype)
{
    return (contents_raw_bytes(input, datatype) + TYPED_ALIGNMENT - 1) & ~(TYPED_ALIGNMENT - 1);
}

/* Typed contents become raw, all in one block. */
static int typed_take(struct infer_call *infer, const struct infer_message *message,
                      const struct model_signature *signature, const int *index,
                      struct error *error)
{
    uint64_t total = 0;
    unsigned char *out;
    for (size_t i = 0; i < signature->input_count; i++) {
        total += typed_room(&message->inputs[index[i]], signature->inputs[i].datatype);
    }
    if (total > INFER_TYPED_BYTES_MAX) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "typed contents of %" PRIu64 " bytes in raw form, at most %" PRIu64
                         " are taken; send raw_input_contents",
                         total, INFER_TYPED_BYTES_MAX);
    }
    infer->typed = buffer_create((size_t)total);
    if (infer->typed == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for typed contents");
    }
    out = infer->typed->data;
    for (size_t i = 0; i < signature->input_count; i++) {
        const struct infer_input *input = &message->inputs[index[i]];
        enum datatype datatype = signature->inputs[i].datatype;
        infer->inputs[i].data = out;
        infer->inputs[i].bytes = (size_t)contents_raw_bytes(input, datatype);
        contents_raw_write(input, datatype, out);
        out += typed_room(input, datatype);
    }
    infer->request.bytes += (size_t)total;
    return 0;
}

static int data_take(struct infer_call *infer, const struct infer_message *message,
                     const struct model_signature *signature, const int *index, struct error *error)
{
    int result = 0;
    if (message->raw_count == 0 && message->input_count > 0) {
        result = typed_take(infer, message, signature, index, error);
    }
    for (size_t i = 0; i < signature->input_count && result == 0; i++) {
        if (message->raw_count > 0) {
            infer->inputs[i].data = message->raw[index[i]].data;
            infer->inputs[i].bytes = message->raw[index[i]].length;
        }
        result = tensor_check(&infer->inputs[i], signature->inputs[i].name, error);
    }
    return result;
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static int inputs_take(struct infer_call *infer, const struct infer_message *message,
                       const struct model_signature *signature, struct error *error)
{
    int index[MODEL_TENSORS_MAX];
    int result = inputs_find(message, signature, index, error);
    if (result == 0) {
        result = batch_take(infer, message, signature, index, error);
    }
    for (size_t i = 0; i < signature->input_count && result == 0; i++) {
        result = datatype_check(&message->inputs[index[i]], &signature->inputs[i], error);
    }
    for (size_t i = 0; i < signature->input_count && result == 0; i++) {
        const struct infer_input *input = &message->inputs[index[i]];
        result = shape_check(input, &signature->inputs[i], signature->batch_max > 0, error);
        if (result == 0) {
            tensor_fill(&infer->inputs[i], input, signature->inputs[i].datatype);
        }
    }
    return result == 0 ? data_take(infer, message, signature, index, error) : result;
}

int infer_call_fill(struct infer_call *infer, const struct infer_message *message,
                    struct error *error)
{
    const struct model_signature *signature = endpoint_signature(infer->endpoint);
    int result = infer_parameters_check(infer, message, error);
    if (result == 0) {
        result = twice_check(message, error);
    }
    if (result == 0) {
        result = sources_check(message, error);
    }
    if (result == 0) {
        result = outputs_take(infer, message, signature, error);
    }
    if (result == 0) {
        result = inputs_take(infer, message, signature, error);
    }
    return result < 0 ? error_prefix(error, "model '%s'", endpoint_name(infer->endpoint)) : 0;
}

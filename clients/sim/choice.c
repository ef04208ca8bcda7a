/* choice.c: policies by name, and their parameters by name. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/sim/baselines.h"
#include "clients/sim/sim.h"
#include "server/base/options.h"

static const struct policy_class *const classes[] = {
    &policy_tidepool, &policy_static,   &policy_kill,      &policy_keda,
    &policy_knative,  &policy_rayserve, &policy_hindsight, &policy_serve_all,
};
#define CLASS_COUNT (sizeof classes / sizeof classes[0])

static const struct policy_class *class_find(const char *name, struct error *error)
{
    const char *names[CLASS_COUNT];
    for (size_t i = 0; i < CLASS_COUNT; i++) {
        names[i] = classes[i]->name;
        if (strcmp(names[i], name) == 0) {
            return classes[i];
        }
    }
    const char *nearest = options_nearest(name, names, CLASS_COUNT);
    error_set(error, ERROR_INVALID_ARGUMENT,
              "--policy: no policy '%.32s'%s%s%s; there are tidepool, static, kill, keda, knative, "
              "rayserve, hindsight and serve-all",
              name, nearest != NULL ? "; do you mean '" : "", nearest != NULL ? nearest : "",
              nearest != NULL ? "'?" : "");
    return NULL;
}

static int parameter_unknown(const struct policy_class *class, const char *name,
                             struct error *error)
{
    char all[256] = "";
    for (size_t i = 0; i < class->parameter_count; i++) {
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "",
                 class->parameters[i].name);
    }
    return error_set(error, ERROR_INVALID_ARGUMENT, "--policy: %s has no parameter '%.32s'; %s%s",
                     class->name, name, class->parameter_count > 0 ? "there are: " : "it has none",
                     all);
}

static int parameter_set(struct policy_choice *choice, char *item, struct error *error)
{
    const struct policy_class *class = choice->class;
    char *value = strchr(item, '='), *end = NULL;
    size_t i = 0;
    if (value != NULL) {
        *value++ = '\0';
    }
    while (i < class->parameter_count && strcmp(class->parameters[i].name, item) != 0) {
        i++;
    }
    if (i == class->parameter_count) {
        return parameter_unknown(class, item, error);
    }
    const struct policy_parameter *parameter = &class->parameters[i];
    double number = value != NULL ? strtod(value, &end) : NAN;
    if (value == NULL || end == value || *end != '\0' || !(number >= parameter->minimum) ||
        !(number <= parameter->maximum)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "--policy: %s of %s is a number from %g to %g (%s), not '%.32s'", item,
                         class->name, parameter->minimum, parameter->maximum, parameter->help,
                         value != NULL ? value : "");
    }
    choice->parameters[i] = number;
    return 0;
}

int sim_policy_parse(const char *text, struct policy_choice *ret_choice, struct error *error)
{
    char *copy = strdup(text), *rest = NULL;
    int result = 0;
    if (copy == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory");
    }
    char *parameters = strchr(copy, ':');
    if (parameters != NULL) {
        *parameters++ = '\0';
    }
    const struct policy_class *class = class_find(copy, error);
    struct policy_choice choice = {0};
    if (class == NULL) {
        result = -(int)error->code;
        goto out;
    }
    choice = policy_standard(class);
    for (char *item = parameters != NULL ? strtok_r(parameters, ",", &rest) : NULL;
         item != NULL && result == 0; item = strtok_r(NULL, ",", &rest)) {
        result = parameter_set(&choice, item, error);
    }
    if (result == 0) {
        *ret_choice = choice;
    }
out:
    free(copy);
    return result;
}

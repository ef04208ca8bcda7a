/* words.h: values as scenario files write them: spans with a unit, flags as yes and no, names with
 * underscores. */
#ifndef TIDEPOOL_TESTS_SIM_WORDS_H
#define TIDEPOOL_TESTS_SIM_WORDS_H

#include "server/record/fields.h"

#define WORD_MAX 96

/* The field's name without the unit at its end, unless another one is called so: "slo_ns" is
 * written "slo". */
void word_of_field(const struct record_fields *fields, const struct record_field *field,
                   char text[WORD_MAX]);
void word_of_value(const struct record_field *field, uint64_t value, char text[WORD_MAX]);
bool word_value(const struct record_field *field, const char *text, uint64_t *ret_value);
/* "1500ms"; also a bare number of nanoseconds. */
bool word_span(const char *text, uint64_t *ret_ns);
void word_of_span(uint64_t ns, char text[WORD_MAX]);
/* Spaces in names are written as underscores. */
bool word_is(const char *name, const char *text);

#endif

/* fields.h: every field of every core event and of the core's configuration, written down once:
 * the server's log, the simulator's replay and the tests' scenario files all read and write by it.
 * A new kind of event or a new field in core.h gets its row in fields.c; logs need nothing more,
 * because each carries the names it was written with (log.h).
 * Thread:  constant tables; any. */
#ifndef TIDEPOOL_RECORD_FIELDS_H
#define TIDEPOOL_RECORD_FIELDS_H

#include "server/core/core.h"

/* What a value means: how a text shows it. Its bytes follow from size alone, but for SIGNED. */
enum record_meaning {
    RECORD_NUMBER, /* counts, ids, masks, thousandths */
    RECORD_SIGNED,
    RECORD_FLAG,
    RECORD_SPAN, /* nanoseconds */
    RECORD_TIME, /* nanoseconds of the caller's clock; 0 none */
    RECORD_BYTES,
    RECORD_ACTION,     /* the action that is answered */
    RECORD_GENERATION, /* of a fencing token */
    RECORD_MODE,
    RECORD_WORK,
    RECORD_RUNG,
};

struct record_field {
    const char *name; /* as in core.h */
    uint16_t offset;  /* in struct core_event or struct core_config */
    uint8_t size;     /* of one element: 1, 4 or 8 */
    uint8_t count;    /* of elements, > 1 in an array */
    enum record_meaning meaning;
};

struct record_fields {
    const char *name; /* of the kind of event, as in core.h, small */
    const struct record_field *fields;
    size_t count;
};

/* kind < CORE_EVENT_COUNT. The time is in every event and in no row. */
const struct record_fields *record_event_fields(enum core_event_kind kind);
const struct record_fields *record_config_fields(void);

/* One element; signed values as their two's complement. */
uint64_t record_field_read(const void *object, const struct record_field *field, size_t index);
/* Bits that do not fit the field are dropped: the caller checks with record_field_fits. */
void record_field_write(void *object, const struct record_field *field, size_t index,
                        uint64_t value);
bool record_field_fits(const struct record_field *field, uint64_t value);

#endif

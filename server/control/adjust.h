/* adjust.h: what the control room needs of settings that calls have changed. Inside control only.
 * Thread:  the control thread. */
#ifndef TIDEPOOL_CONTROL_ADJUST_H
#define TIDEPOOL_CONTROL_ADJUST_H

#include <stddef.h>
#include <stdint.h>

struct control;
struct endpoint_entry;

/* Brings the core (and serve) to what the overrides say; of an endpoint: over what is configured.
 */
void device_adjust(struct control *control, uint32_t index);
void endpoint_adjust(struct control *control, struct endpoint_entry *endpoint);
/* "drained by ops: new fans"; "" without an override. */
void device_adjust_reason(const struct control *control, uint32_t index, char *text, size_t size);
/* At every tick: ends those whose time is over. */
void overrides_expire(struct control *control);

#endif

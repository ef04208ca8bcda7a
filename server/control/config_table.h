/* config_table.h: the keys of the configuration, as tables. Inside config*.c only. */
#ifndef TIDEPOOL_CONTROL_CONFIG_TABLE_H
#define TIDEPOOL_CONTROL_CONFIG_TABLE_H

#include "server/base/options.h"
#include "server/control/config.h"

extern const struct option config_table[]; /* into struct config */
extern const size_t config_table_count;

struct config_listener_entry {
    char *address;
    json_t *services;
};
extern const struct option config_team_table[];
extern const size_t config_team_table_count;
extern const struct option config_listener_table[];
extern const size_t config_listener_table_count;

/* Objects within the object, each with a table of its own, into struct config too. */
struct config_part {
    const char *name;
    size_t offset; /* of the json_t * in struct config */
    const struct option *table;
    size_t count;
};
extern const struct config_part config_parts[];
extern const size_t config_parts_count;

#endif

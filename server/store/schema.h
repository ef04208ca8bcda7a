/* schema.h: the tables, and how an older database comes to have them. Inside the store only.
 * Thread:  before start. */
#ifndef TIDEPOOL_STORE_SCHEMA_H
#define TIDEPOOL_STORE_SCHEMA_H

#include <sqlite3.h>

#include "server/base/error.h"

/* Brings a new or older database to STORE_SCHEMA, version by version: each in one transaction, so
 * that a crash or a full disk leaves the one before. FAILED_PRECONDITION: a newer Tidepool's. */
int schema_bring_up(sqlite3 *database, struct error *error);

#endif

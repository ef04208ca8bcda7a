/* database.h: the SQLite file behind the store: opening, schema, one transaction at a time.
 * Inside the store only.
 * Thread:  whoever holds it, one at a time. */
#ifndef TIDEPOOL_STORE_DATABASE_H
#define TIDEPOOL_STORE_DATABASE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "server/base/error.h"

/* Opens or creates the file, checks all of it, brings its schema up to STORE_SCHEMA. NULL: error;
 * DATA_LOSS: it is damaged, and as it was. `known`: there was one, an empty file is damage. */
sqlite3 *database_open(const char *path, bool known, struct error *error);
void database_close(sqlite3 *database); /* NULL is fine */

/* Runs a statement without results. `what` begins the error text. */
int database_run(sqlite3 *database, const char *sql, const char *what, struct error *error);
/* The error that `database` reports now, with a text that names the file and the way out. */
int database_error(sqlite3 *database, const char *what, struct error *error);

#endif

/* huge_pages.h: large pages for whatever malloc takes from the system. Weights are read once a
 * batch or micro-batch: with pages of 4 KiB address translation alone takes some percent of that.
 * The C library asks for them only when told so before it starts, hence the new start of the
 * program.
 * Thread:  before any other exists. */
#ifndef TIDEPOOL_BASE_HUGE_PAGES_H
#define TIDEPOOL_BASE_HUGE_PAGES_H

/* Starts this program again (same process, same arguments) with the setting. Returns where it is
 * there already, where the kernel gives large pages to all or to nobody, and where it cannot be. */
void huge_pages_use(char *const *arguments);

#endif

/* files.c: the folders of jobs, and what lies in them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/folder.h"
#include "server/outside/internal.h"

#define SPECIFICATION "specification.json"
#define SPECIFICATION_BYTES_MAX (8 << 20)

/* ---- places ------------------------------------------------------------------------------------
 */

bool outside_job_folder(const char *state_directory, const char *id, char *path, size_t size)
{
    int length = snprintf(path, size, "%s/jobs/%s", state_directory, id);
    return length > 0 && (size_t)length < size;
}

bool outside_run_folder(const char *state_directory, const char *id, uint32_t run, char *path,
                        size_t size)
{
    char folder[PATH_MAX];
    int length = outside_job_folder(state_directory, id, folder, sizeof folder)
                     ? snprintf(path, size, "%s/run-%u", folder, run)
                     : -1;
    return length > 0 && (size_t)length < size;
}

/* ---- files -------------------------------------------------------------------------------------
 */

static int text_write(int fd, const char *text)
{
    size_t length = strlen(text);
    while (length > 0) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return -1;
        }
        text += written;
        length -= (size_t)written;
    }
    return 0;
}

static int write_and_close(int fd, const char *text, bool durable)
{
    int number = text_write(fd, text) < 0 || (durable && fsync(fd) < 0) ? errno : 0;
    if (close(fd) < 0 && number == 0) {
        number = errno;
    }
    return number;
}

static int file_replace(const char *folder, const char *name, const char *text, bool durable,
                        struct error *error)
{
    char path[PATH_MAX], fresh[PATH_MAX];
    int length = snprintf(fresh, sizeof fresh, "%s/%s.new", folder, name);
    int number = ENAMETOOLONG;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < (int)sizeof fresh) {
        int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        number = fd < 0 ? errno : write_and_close(fd, text, durable);
        number = number == 0 && rename(fresh, path) < 0 ? errno : number;
    }
    return number == 0 ? 0 : error_set_errno(error, number, "write '%s'", path);
}

int file_write(const char *folder, const char *name, const char *text, struct error *error)
{
    return file_replace(folder, name, text, false, error);
}

void file_remove(const char *folder, const char *name)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path) {
        (void)unlink(path);
    }
}

void run_remove(const char *run_folder)
{
    static const char *const names[] = {"log",    "log.1",      "shim.log",
                                        "socket", "record.new", "record"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        file_remove(run_folder, names[i]);
    }
    (void)rmdir(run_folder);
}

int outside_keep_specification(const char *state_directory, const char *id, const char *text,
                               struct error *error)
{
    char folder[PATH_MAX];
    if (!outside_job_folder(state_directory, id, folder, sizeof folder)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "job '%s': too long a path", id);
    }
    int result = folder_make_all(folder, 0700, error);
    return result < 0 ? result : file_replace(folder, SPECIFICATION, text, true, error);
}

static char *file_read(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat status;
    char *text = NULL;
    int fd = snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path
                 ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
                 : -1;
    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size <= SPECIFICATION_BYTES_MAX) {
        text = calloc(1, (size_t)status.st_size + 1);
    }
    if (text != NULL && read(fd, text, (size_t)status.st_size) != status.st_size) {
        free(text);
        text = NULL;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return text;
}

/* ---- what a lost store leaves ------------------------------------------------------------------
 */

static uint32_t last_run(const char *folder)
{
    uint32_t last = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        unsigned run = 0;
        char rest;
        if (sscanf(entry->d_name, "run-%u%c", &run, &rest) == 1 && run > last) {
            last = run;
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return last;
}

static void scan_one(const char *state_directory, const char *id,
                     void (*each)(void *context, const struct outside_found *found), void *context)
{
    char folder[PATH_MAX], run_folder[PATH_MAX];
    struct shim_record record;
    const char *dash = strrchr(id, '-');
    uint64_t job = dash != NULL ? strtoull(dash + 1, NULL, 10) : 0;
    if (job == 0 || !outside_job_folder(state_directory, id, folder, sizeof folder)) {
        return;
    }
    uint32_t run = last_run(folder);
    if (run == 0 || !outside_run_folder(state_directory, id, run, run_folder, sizeof run_folder) ||
        record_read(run_folder, &record, NULL) < 0 || record.state == SHIM_FAILED) {
        return;
    }
    char *specification = file_read(folder, SPECIFICATION);
    if (specification != NULL) {
        each(context, &(struct outside_found){id, specification, job, run, &record});
    }
    free(specification);
}

void outside_scan(const char *state_directory,
                  void (*each)(void *context, const struct outside_found *found), void *context)
{
    char path[PATH_MAX];
    DIR *directory =
        outside_job_folder(state_directory, "", path, sizeof path) ? opendir(path) : NULL;
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] != '.') {
            scan_one(state_directory, entry->d_name, each, context);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

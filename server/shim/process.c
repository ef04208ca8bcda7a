#include "server/shim/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t boottime_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Reads a small file of the kernel's into a string; the length or -1. */
static ssize_t text_read(const char *path, char *text, size_t size)
{
    ssize_t length;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    length = read(fd, text, size - 1);
    (void)close(fd);
    if (length >= 0) {
        text[length] = '\0';
    }
    return length;
}

int boot_id_read(char boot_id[BOOT_ID_SIZE], struct error *error)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    if (text_read(path, boot_id, BOOT_ID_SIZE) < 32) {
        return error_set(error, ERROR_UNAVAILABLE, "read '%s': no boot id", path);
    }
    boot_id[strcspn(boot_id, "\n")] = '\0';
    return 0;
}

static bool stat_read(const char *path, struct process *ret_process)
{
    char text[1024];
    const char *rest;
    unsigned long long start;
    struct process process = {0};
    if (text_read(path, text, sizeof(text)) <= 0) {
        return false;
    }
    rest = strrchr(text, ')'); /* the name before it may hold anything */
    if (rest == NULL ||
        sscanf(rest + 1,
               " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &process.state, &process.parent, &process.group, &process.session, &start) != 5) {
        return false;
    }
    process.pid = (pid_t)strtol(text, NULL, 10);
    process.start = start;
    *ret_process = process;
    return true;
}

bool process_read(pid_t pid, struct process *ret_process)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    return stat_read(path, ret_process);
}

static bool state_quiet(char state)
{
    return strchr("TtZX", state) != NULL;
}

bool process_quiet(pid_t pid)
{
    char path[512];
    bool quiet = true;
    struct dirent *entry;
    DIR *tasks;
    (void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
    tasks = opendir(path);
    if (tasks == NULL) {
        return true; /* gone */
    }
    while (quiet && (entry = readdir(tasks)) != NULL) {
        struct process task;
        (void)snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", pid, entry->d_name);
        quiet = entry->d_name[0] == '.' || !stat_read(path, &task) || state_quiet(task.state);
    }
    (void)closedir(tasks);
    return quiet;
}

int process_open(pid_t pid, uint64_t start)
{
    struct process now;
    int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    /* Read after opening: if it is the same now, the descriptor is its. */
    if (fd >= 0 && (!process_read(pid, &now) || now.start != start)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

bool process_over(int pidfd)
{
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLIN);
}

uid_t process_user(pid_t pid)
{
    char path[64], text[2048];
    const char *line;
    unsigned real, effective;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
    if (text_read(path, text, sizeof(text)) <= 0 || (line = strstr(text, "\nUid:")) == NULL ||
        sscanf(line, "\nUid: %u %u", &real, &effective) != 2) {
        return (uid_t)-1;
    }
    return effective;
}

bool process_has_variable(pid_t pid, const char *variable)
{
    char path[64];
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    FILE *file;
    (void)snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    while (!found && getdelim(&line, &size, '\0', file) > 0) {
        found = strcmp(line, variable) == 0;
    }
    free(line);
    (void)fclose(file);
    return found;
}

static int list_add(struct process_list *list, const struct process *process)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 256 : 2 * list->capacity;
        struct process *items = realloc(list->items, capacity * sizeof(*items));
        if (items == NULL) {
            return -(int)ERROR_RESOURCE_EXHAUSTED;
        }
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = *process;
    return 0;
}

static int by_pid(const void *a, const void *b)
{
    const struct process *left = a, *right = b;
    return (left->pid > right->pid) - (left->pid < right->pid);
}

int process_scan(struct process_list *list)
{
    int result = 0;
    struct dirent *entry;
    DIR *directory = opendir("/proc");
    list->count = 0;
    if (directory == NULL) {
        return -(int)ERROR_UNAVAILABLE;
    }
    while (result == 0 && (entry = readdir(directory)) != NULL) {
        struct process process;
        if (isdigit((unsigned char)entry->d_name[0]) &&
            process_read((pid_t)strtol(entry->d_name, NULL, 10), &process)) {
            result = list_add(list, &process);
        }
    }
    (void)closedir(directory);
    if (list->count > 0) {
        qsort(list->items, list->count, sizeof(list->items[0]), by_pid);
    }
    return result;
}

const struct process *process_find(const struct process_list *list, pid_t pid)
{
    struct process key = {.pid = pid};
    return list->count == 0
               ? NULL
               : bsearch(&key, list->items, list->count, sizeof(list->items[0]), by_pid);
}

static bool process_below(const struct process_list *list, const struct process *process,
                          pid_t root)
{
    /* No chain of parents is longer than the list; one that is has changed while it was read. */
    for (size_t steps = 0; process != NULL && steps <= list->count; steps++) {
        if (process->parent == root) {
            return true;
        }
        process = process_find(list, process->parent);
    }
    return false;
}

void process_keep_below(struct process_list *list, pid_t root)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        list->items[i].below = process_below(list, &list->items[i], root);
    }
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].below) {
            list->items[kept++] = list->items[i];
        }
    }
    list->count = kept;
}

void process_list_fini(struct process_list *list)
{
    free(list->items);
    *list = (struct process_list){0};
}

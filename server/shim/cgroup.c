#include "server/shim/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int file_path(char path[PATH_MAX], const char *directory, const char *name)
{
    int length = snprintf(path, PATH_MAX, "%s/%s", directory, name);
    return length < 0 || length >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int file_write(const char *directory, const char *name, const char *text)
{
    char path[PATH_MAX];
    int result = file_path(path, directory, name);
    int fd = result < 0 ? -1 : open(path, O_WRONLY | O_CLOEXEC);
    if (result == 0 && (fd < 0 || write(fd, text, strlen(text)) < 0)) {
        result = -errno;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return result;
}

static ssize_t file_read(const char *directory, const char *name, char *text, size_t size)
{
    char path[PATH_MAX];
    ssize_t length = file_path(path, directory, name);
    int fd = length < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (length == 0 && (fd < 0 || (length = read(fd, text, size - 1)) < 0)) {
        length = -errno;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    text[length > 0 ? length : 0] = '\0';
    return length;
}

static bool file_there(const char *directory, const char *name)
{
    char path[PATH_MAX];
    return file_path(path, directory, name) == 0 && access(path, W_OK) == 0;
}

/* Whether `word` is one of a list that commas separate. */
static bool list_has(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

struct mount {
    char root[PATH_MAX], point[PATH_MAX];
};

/* Where the hierarchy is mounted: the v2 tree, or the v1 tree with the freezer. */
static bool mount_find(enum cgroup_kind kind, struct mount *ret_mount)
{
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    while (file != NULL && !found && getline(&line, &size, file) > 0) {
        char type[64], options[512];
        const char *rest = strstr(line, " - ");
        if (rest == NULL || sscanf(rest, " - %63s %*s %511s", type, options) != 2 ||
            sscanf(line, "%*d %*d %*s %4095s %4095s", ret_mount->root, ret_mount->point) != 2) {
            continue;
        }
        found = kind == CGROUP_V2 ? strcmp(type, "cgroup2") == 0
                                  : strcmp(type, "cgroup") == 0 && list_has(options, "freezer");
    }
    free(line);
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

/* The caller's own group in that hierarchy, as /proc/self/cgroup names it. */
static bool own_find(enum cgroup_kind kind, char own[PATH_MAX])
{
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && !found && getline(&line, &size, file) > 0) {
        char *controllers = strchr(line, ':');
        char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        found = kind == CGROUP_V2 ? controllers[1] == '\0' : list_has(controllers + 1, "freezer");
        (void)snprintf(own, PATH_MAX, "%s", path);
    }
    free(line);
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

static int group_path(enum cgroup_kind kind, const char *name, char path[PATH_MAX],
                      struct error *error)
{
    struct mount mount;
    char own[PATH_MAX];
    const char *below = own;
    size_t root;
    int length;
    if (!mount_find(kind, &mount) || !own_find(kind, own)) {
        return error_set(error, ERROR_UNIMPLEMENTED, "control group: this machine has no %s",
                         kind == CGROUP_V2 ? "v2 tree" : "v1 freezer");
    }
    root = strcmp(mount.root, "/") == 0 ? 0 : strlen(mount.root);
    if (strncmp(own, mount.root, root) == 0) {
        below += root; /* a container sees a part of the tree as the whole */
    }
    length = snprintf(path, PATH_MAX, "%s%s%s/%s", mount.point, strcmp(below, "/") == 0 ? "" : "",
                      strcmp(below, "/") == 0 ? "" : below, name);
    if (length >= PATH_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "control group '%s': too long a path",
                         name);
    }
    return 0;
}

static int group_make(enum cgroup_kind kind, const char *name, struct cgroup *ret_cgroup,
                      struct error *error)
{
    struct cgroup cgroup = {.kind = kind};
    int result = group_path(kind, name, cgroup.path, error);
    bool works;
    if (result < 0) {
        return result;
    }
    if (mkdir(cgroup.path, 0755) < 0) {
        return error_set_errno(error, errno, "create control group '%s'", cgroup.path);
    }
    works = file_there(cgroup.path, "cgroup.procs") &&
            (kind == CGROUP_V2 ? file_there(cgroup.path, "cgroup.freeze") &&
                                     file_there(cgroup.path, "cgroup.kill")
                               : file_there(cgroup.path, "freezer.state"));
    if (!works) {
        (void)rmdir(cgroup.path);
        return error_set(error, ERROR_UNIMPLEMENTED,
                         "control group '%s': this kernel cannot freeze and kill it", cgroup.path);
    }
    *ret_cgroup = cgroup;
    return 0;
}

int cgroup_create(enum cgroup_mode mode, const char *name, struct cgroup *ret_cgroup,
                  struct error *error)
{
    switch (mode) {
    case CGROUP_ONLY_V2:
        return group_make(CGROUP_V2, name, ret_cgroup, error);
    case CGROUP_ONLY_V1:
        return group_make(CGROUP_V1, name, ret_cgroup, error);
    case CGROUP_AUTO:
        if (group_make(CGROUP_V2, name, ret_cgroup, error) == 0 ||
            group_make(CGROUP_V1, name, ret_cgroup, error) == 0) {
            return 0;
        }
        break;
    case CGROUP_NEVER:
        break;
    }
    *ret_cgroup = (struct cgroup){.kind = CGROUP_NONE};
    return 0;
}

int cgroup_enter(const struct cgroup *cgroup)
{
    return file_write(cgroup->path, "cgroup.procs", "0");
}

int cgroup_freeze(const struct cgroup *cgroup, bool frozen)
{
    return cgroup->kind == CGROUP_V2
               ? file_write(cgroup->path, "cgroup.freeze", frozen ? "1" : "0")
               : file_write(cgroup->path, "freezer.state", frozen ? "FROZEN" : "THAWED");
}

bool cgroup_is_frozen(const struct cgroup *cgroup)
{
    char text[512];
    /* A notification comes at most every 10 ms; reading is exact. */
    return cgroup->kind == CGROUP_V2
               ? file_read(cgroup->path, "cgroup.events", text, sizeof(text)) > 0 &&
                     strstr(text, "frozen 1") != NULL
               : file_read(cgroup->path, "freezer.state", text, sizeof(text)) > 0 &&
                     strcmp(text, "FROZEN\n") == 0;
}

/* Calls `visit` for the group and each one below, the deepest first, until one returns < 0. */
static int group_walk(const char *path, int (*visit)(const char *path))
{
    int result = 0;
    struct dirent *entry;
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return errno == ENOENT ? 0 : -errno;
    }
    while (result == 0 && (entry = readdir(directory)) != NULL) {
        char below[PATH_MAX];
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
            file_path(below, path, entry->d_name) == 0) {
            result = group_walk(below, visit);
        }
    }
    (void)closedir(directory);
    return result < 0 ? result : visit(path);
}

static int members_visit(const char *path, bool (*each)(pid_t pid))
{
    char file_name[PATH_MAX];
    int members = 0, pid;
    int result = file_path(file_name, path, "cgroup.procs");
    FILE *file = result < 0 ? NULL : fopen(file_name, "re");
    if (file == NULL) {
        return errno == ENOENT || errno == ENODEV ? 0 : -errno;
    }
    while (fscanf(file, "%d", &pid) == 1) {
        members += each(pid);
    }
    (void)fclose(file);
    return members;
}

static bool member_kill(pid_t pid)
{
    return kill(pid, SIGKILL) == 0;
}

static bool member_count(pid_t pid)
{
    (void)pid;
    return true;
}

static int members_kill(const char *path)
{
    int members = members_visit(path, member_kill);
    return members < 0 ? members : 0;
}

static int members_any(const char *path)
{
    int members = members_visit(path, member_count);
    return members > 0 ? -EBUSY : members;
}

int cgroup_kill(const struct cgroup *cgroup)
{
    int result;
    if (cgroup->kind == CGROUP_V2) {
        return file_write(cgroup->path, "cgroup.kill", "1");
    }
    /* Frozen, so that nobody forks between reading and killing; then thawed, or nobody dies. */
    (void)cgroup_freeze(cgroup, true);
    result = group_walk(cgroup->path, members_kill);
    (void)cgroup_freeze(cgroup, false);
    return result;
}

int cgroup_populated(const struct cgroup *cgroup)
{
    char text[512];
    int result;
    if (cgroup->kind == CGROUP_V2) {
        ssize_t length = file_read(cgroup->path, "cgroup.events", text, sizeof(text));
        if (length < 0) {
            return length == -ENOENT || length == -ENODEV ? 0 : (int)length;
        }
        return strstr(text, "populated 1") != NULL;
    }
    result = group_walk(cgroup->path, members_any);
    return result == -EBUSY ? 1 : result;
}

static int group_remove(const char *path)
{
    return rmdir(path) < 0 && errno != ENOENT ? -errno : 0;
}

int cgroup_remove(const struct cgroup *cgroup)
{
    return cgroup->kind == CGROUP_NONE ? 0 : group_walk(cgroup->path, group_remove);
}

/* CPU devices: sets of cores. Equal sizes, whole physical cores, within one NUMA node. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "server/device/backend.h"

#define DEVICES_DEFAULT_MAX 8

static bool file_read(const char *path, char *text, size_t size)
{
    size_t length;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    length = fread(text, 1, size - 1, file);
    (void)fclose(file);
    text[length] = '\0';
    return length > 0;
}

static long cpu_topology(int cpu, const char *name)
{
    char path[128], text[32];
    (void)snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
    return file_read(path, text, sizeof(text)) ? strtol(text, NULL, 10) : cpu;
}

static int cpu_node(int cpu)
{
    char path[64];
    int node = 0;
    struct dirent *entry;
    DIR *directory;
    (void)snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d", cpu);
    directory = opendir(path);
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (sscanf(entry->d_name, "node%d", &node) == 1) {
            break;
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return node;
}

/* CPUs' worth of time the cgroup allows, or INT32_MAX. v2: "max 100000" or "200000 100000". */
static int cgroup_quota(void)
{
    char text[64], period_text[64];
    double quota = -1, period = 100000;
    if (file_read("/sys/fs/cgroup/cpu.max", text, sizeof(text))) {
        if (sscanf(text, "%lf %lf", &quota, &period) != 2) {
            return INT32_MAX;
        }
    } else if (file_read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text, sizeof(text)) &&
               file_read("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period_text,
                         sizeof(period_text))) {
        quota = strtod(text, NULL);
        period = strtod(period_text, NULL);
    }
    if (quota <= 0 || period <= 0) {
        return INT32_MAX;
    }
    return quota < period ? 1 : (int)(quota / period);
}

static uint64_t memory_allowed(void)
{
    char text[64];
    struct sysinfo info;
    uint64_t bytes = 0;
    if (sysinfo(&info) == 0) {
        bytes = (uint64_t)info.totalram * info.mem_unit;
    }
    if (file_read("/sys/fs/cgroup/memory.max", text, sizeof(text)) ||
        file_read("/sys/fs/cgroup/memory/memory.limit_in_bytes", text, sizeof(text))) {
        uint64_t limit = strtoull(text, NULL, 10); /* "max" gives 0 */
        bytes = limit > 0 && limit < bytes ? limit : bytes;
    }
    return bytes;
}

/* The first hardware thread of each physical core of `mask`, ordered by NUMA node. */
static int physical_cores(const cpu_set_t *mask, int *cores, int *nodes)
{
    int count = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        bool first = CPU_ISSET(cpu, mask);
        for (int i = 0; first && i < count; i++) {
            first = cpu_topology(cores[i], "core_id") != cpu_topology(cpu, "core_id") ||
                    cpu_topology(cores[i], "physical_package_id") !=
                        cpu_topology(cpu, "physical_package_id");
        }
        if (first) {
            int at = count++;
            int node = cpu_node(cpu);
            for (; at > 0 && nodes[at - 1] > node; at--) {
                cores[at] = cores[at - 1];
                nodes[at] = nodes[at - 1];
            }
            cores[at] = cpu;
            nodes[at] = node;
        }
    }
    return count;
}

/* "0-3,8" for a set. */
static void set_name(const cpu_set_t *set, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int cpu = 0; cpu < CPU_SETSIZE && used < size; cpu++) {
        int last = cpu;
        if (!CPU_ISSET(cpu, set)) {
            continue;
        }
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set)) {
            last++;
        }
        used += (size_t)snprintf(text + used, size - used, last > cpu ? "%s%d-%d" : "%s%d",
                                 used > 0 ? "," : "", cpu, last);
        cpu = last;
    }
}

struct share {
    int device_count;
    int cores_each;
};

static int share_choose(const struct device_config *config, int cores, struct share *share,
                        struct error *error)
{
    int usable = cores > 2 ? cores - 1 : cores; /* one for the network where there are enough */
    share->device_count = (int)config->cpu_devices;
    share->cores_each = (int)config->cores_per_device;
    if (share->device_count > 0 && share->cores_each == 0) {
        /* Asked for: the whole mask may be used, also the core that the default would keep. */
        share->cores_each = usable / share->device_count;
        if (share->cores_each == 0) {
            share->cores_each = cores / share->device_count;
        }
    } else if (share->device_count == 0) {
        if (share->cores_each == 0) {
            share->cores_each = (usable + DEVICES_DEFAULT_MAX - 1) / DEVICES_DEFAULT_MAX;
        }
        share->device_count = usable / share->cores_each;
        if (share->device_count > DEVICES_DEFAULT_MAX) {
            share->device_count = DEVICES_DEFAULT_MAX;
        }
    }
    if (share->device_count < 1 || share->cores_each < 1 ||
        share->device_count * share->cores_each > cores) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "devices: %u CPU devices of %u cores are wanted, %d physical cores are "
                         "allowed here; lower devices.cpu or devices.cores_per_device",
                         config->cpu_devices, config->cores_per_device, cores);
    }
    return 0;
}

static int cpu_enumerate(const struct device_config *config, cpu_set_t *free_cores,
                         struct device *devices, uint32_t room, struct error *error)
{
    int cores[CPU_SETSIZE], nodes[CPU_SETSIZE];
    struct share share;
    int made = 0;
    int quota = cgroup_quota();
    int count = physical_cores(free_cores, cores, nodes);
    int result = share_choose(config, count < quota ? count : quota, &share, error);
    if (result < 0) {
        return result;
    }
    /* From the last core down: the first ones take most interrupts and stay for the network. */
    for (int end = count; made < share.device_count && end >= share.cores_each;) {
        struct device *device = &devices[made];
        char name[48];
        if (nodes[end - 1] != nodes[end - share.cores_each] && config->cpu_devices == 0) {
            end--; /* a device never spans two nodes unless it was asked for */
            continue;
        }
        if ((uint32_t)made == room) {
            break;
        }
        for (int i = 0; i < share.cores_each; i++) {
            CPU_SET(cores[--end], &device->cores);
            CPU_CLR(cores[end], free_cores);
        }
        device->core_count = (unsigned)share.cores_each;
        device->memory_bytes = config->memory_bytes > 0
                                   ? config->memory_bytes
                                   : memory_allowed() / (uint64_t)share.device_count;
        set_name(&device->cores, name, sizeof(name));
        (void)snprintf(device->id, sizeof(device->id), "cpu:%s", name);
        (void)snprintf(device->kind, sizeof(device->kind), "cpu");
        made++;
    }
    return made;
}

static void cpu_release(struct device *device)
{
    (void)device;
}

static int cpu_memory_allocate(struct device *device, size_t bytes, void **ret_memory,
                               struct error *error)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes > 0 ? bytes : 64) != 0) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no %zu bytes for device %s", bytes,
                         device->id);
    }
    *ret_memory = memory;
    return 0;
}

static void cpu_memory_free(struct device *device, void *memory)
{
    (void)device;
    free(memory);
}

static int cpu_copy(struct device *device, enum device_copy direction, void *to, const void *from,
                    size_t bytes, struct error *error)
{
    (void)device;
    (void)direction;
    (void)error;
    memcpy(to, from, bytes);
    return 0;
}

static int cpu_thread_enter(struct device *device, enum device_role role, struct error *error)
{
    struct sched_param none = {0};
    int number = pthread_setaffinity_np(pthread_self(), sizeof(device->cores), &device->cores);
    if (number != 0) {
        return error_set_errno(error, number, "pin a thread to the cores of device %s", device->id);
    }
    if (role == DEVICE_SERVING) {
        return 0;
    }
    if (sched_setscheduler(0, SCHED_IDLE, &none) == 0) {
        return 0;
    }
    number = errno;
    if (setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19) == 0) {
        return 0;
    }
    return error_set_errno(error, number, "put a training thread of device %s below serving",
                           device->id);
}

/* A core taken offline, or out of the process's cpuset, ends the device. cpu0 often has no file. */
static int cpu_health(struct device *device, struct device_health *ret_health, struct error *error)
{
    (void)error;
    *ret_health = (struct device_health){.usable = true, .speed_percent = 100};
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char path[64], text[8];
        (void)snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
        if (CPU_ISSET(cpu, &device->cores) && file_read(path, text, sizeof(text)) &&
            text[0] == '0') {
            *ret_health = (struct device_health){.reason = "a core is offline"};
        }
    }
    return 0;
}

/* A CPU device is free of its holder when none of the holder's processes lives. */
static int cpu_verify(struct device *device, const int *holder_pids, size_t count,
                      struct error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (kill(holder_pids[i], 0) == 0 || errno == EPERM) {
            return error_set(error, ERROR_FAILED_PRECONDITION,
                             "device %s: process %d of its former holder is alive", device->id,
                             holder_pids[i]);
        }
    }
    return 0;
}

const struct device_backend cpu_backend = {
    .version = DEVICE_BACKEND_VERSION,
    .kind = "cpu",
    .runs_inline = true,
    .enumerate = cpu_enumerate,
    .release = cpu_release,
    .memory_allocate = cpu_memory_allocate,
    .memory_free = cpu_memory_free,
    .copy = cpu_copy,
    .thread_enter = cpu_thread_enter,
    .health = cpu_health,
    .verify = cpu_verify,
};

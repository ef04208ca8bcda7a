/* test_record.c: what a server records of its events repeats its actions: random schedules through
 * the log's writer and back. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/record/log.h"
#include "server/record/restart.h"
#include "server/record/writer.h"
#include "tests/sim/world_state.h"

static struct record_writer *writer;
static void (*checked)(struct rig *rig, const struct core_event *event);

/* Of all files in the folder; `first` is the oldest of them. */
static uint64_t bytes_in(const char *folder, char first[128])
{
    struct dirent **entries;
    uint64_t sum = 0;
    int count = scandir(folder, &entries, NULL, alphasort);
    first[0] = 0;
    for (int i = 0; i < count; i++) {
        char path[400];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && stat(path, &info) == 0) {
            sum += (uint64_t)info.st_size;
            if (first[0] == 0) {
                snprintf(first, 128, "%.127s", path);
            }
        }
        free(entries[i]);
    }
    free(entries);
    return sum;
}

static const char *bounded_folder; /* looked at while events are recorded; NULL: none */
static uint64_t bounded_bytes;

static void on_step(struct rig *rig, const struct core_event *event)
{
    char first[128];
    checked(rig, event);
    record_writer_event(writer, rig->core, event);
    record_writer_flush(writer, rig->core, rig->now_ns);
    if (bounded_folder != NULL && rig->steps % 50 == 0) {
        assert_true(bytes_in(bounded_folder, first) <= bounded_bytes);
    }
}

static char *folder_make(void)
{
    static char folder[64];
    snprintf(folder, sizeof folder, "/tmp/tidepool-record-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return folder;
}

static void folder_remove(const char *folder)
{
    struct dirent *entry;
    DIR *files = opendir(folder);
    while ((entry = readdir(files)) != NULL) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(files);
    assert_int_equal(rmdir(folder), 0);
}

/* A schedule of one life, recorded from its first event on. Returns the hash of its actions. */
static uint64_t play_long(const char *folder, uint64_t seed, uint64_t bytes_max, uint64_t events,
                          uint64_t *ret_steps)
{
    struct error error;
    struct world *world = world_prepare(seed, false, NULL);
    struct record_options options = {
        .directory = folder, .bytes_max = bytes_max, .wall_ns = 77, .now_ns = world->rig->now_ns};
    writer = record_writer_create(&options, &world->config, &error);
    assert_non_null(writer);
    checked = world->rig->on_step;
    world->rig->on_step = on_step;
    world_begin(world);
    world_play(world, events);
    world_settle(world);
    uint64_t hash = core_hash(world->rig->core);
    *ret_steps = world->rig->steps;
    record_writer_destroy(writer, world->rig->core);
    world_destroy(world);
    return hash;
}

static uint64_t play(const char *folder, uint64_t seed, uint64_t bytes_max, uint64_t *ret_steps)
{
    return play_long(folder, seed, bytes_max, 2000, ret_steps);
}

struct replayed {
    uint64_t events, hashes, wrong, torn;
    uint64_t restart; /* events that rebuild the core */
    uint64_t hash;    /* at the end */
};

static struct replayed replay(const char *path)
{
    struct replayed replayed = {0};
    struct error error;
    struct record_item item;
    struct core_action *actions = NULL;
    struct record_reader *reader = record_open(path, &error);
    if (reader == NULL) {
        fail_msg("%s", error.text);
    }
    struct core *core = core_create(&record_reader_head(reader)->config);
    assert_non_null(core);
    assert_true((record_reader_head(reader)->wall_ns == 77) ==
                (record_reader_head(reader)->part == 0));
    for (;;) {
        assert_int_equal(record_next(reader, &item, &error), 0);
        if (item.kind == RECORD_END) {
            break;
        }
        if (item.kind == RECORD_HASH) {
            replayed.hashes++;
            replayed.wrong += item.hash != core_hash(core);
            continue;
        }
        actions = realloc(actions, core_actions_max(core) * sizeof *actions);
        assert_non_null(actions);
        core_step(core, &item.event, actions);
        replayed.events += item.restart ? 0 : 1;
        replayed.restart += item.restart ? 1 : 0;
    }
    replayed.hash = core_hash(core);
    replayed.torn = record_torn(reader);
    free(actions);
    core_destroy(core);
    record_close(reader);
    return replayed;
}

static void path_of(const char *folder, char path[128])
{
    snprintf(path, 128, "%s/events-00000001-000000.log", folder);
}

static void recorded_events_give_the_recorded_actions(void **state)
{
    (void)state;
    uint64_t bytes = 0, steps_all = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        char path[128];
        uint64_t steps;
        struct stat info;
        char *folder = folder_make();
        uint64_t hash = play(folder, seed, UINT64_C(64) << 20, &steps);
        path_of(folder, path);
        struct replayed replayed = replay(path);
        assert_int_equal(replayed.events, steps);
        assert_int_equal(replayed.hash, hash);
        assert_int_equal(replayed.wrong, 0);
        assert_true(replayed.hashes > 0);
        assert_int_equal(replayed.torn, 0);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        bytes += (uint64_t)info.st_size;
        steps_all += steps;
        folder_remove(folder);
    }
    printf("%" PRIu64 " events in %" PRIu64 " bytes: %.1f each\n", steps_all, bytes,
           (double)bytes / (double)steps_all);
}

/* What is left of a log of which the machine stopped in the middle of a write. */
static void cut_or_damaged_tail_costs_only_itself(void **state)
{
    (void)state;
    char path[128];
    uint64_t steps;
    char *folder = folder_make();
    play(folder, 3, UINT64_C(64) << 20, &steps);
    path_of(folder, path);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    uint64_t before = steps;
    for (long cut = size - 1; cut > size - 3000; cut -= 97) {
        assert_int_equal(ftruncate(fileno(file), cut), 0);
        struct replayed replayed = replay(path);
        assert_true(replayed.events <= before);
        assert_int_equal(replayed.wrong, 0);
        assert_true(replayed.torn > 0 || replayed.events < steps);
        before = replayed.events;
    }
    assert_true(before > 0);
    fseek(file, ftell(file) / 2, SEEK_SET);
    fputc(0x55, file);
    fputc(0xaa, file);
    fclose(file);
    struct replayed replayed = replay(path);
    assert_true(replayed.events < before);
    assert_true(replayed.torn > 0);
    assert_int_equal(replayed.wrong, 0);
    folder_remove(folder);
}

static void parts_are_read_as_one_log(void **state)
{
    (void)state;
    char path[128], second[128];
    uint64_t steps;
    char *folder = folder_make();
    uint64_t hash = play_long(folder, 5, 300000, 8000, &steps);
    path_of(folder, path);
    snprintf(second, sizeof second, "%s/events-00000001-000001.log", folder);
    assert_int_equal(access(second, F_OK), 0);
    struct replayed replayed = replay(path);
    assert_int_equal(replayed.events, steps);
    assert_int_equal(replayed.hash, hash);
    assert_int_equal(replayed.wrong, 0);
    assert_int_equal(replayed.torn, 0);
    /* One that misses its end is not continued by the next: a hole would go unnoticed. */
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size - 7), 0);
    replayed = replay(path);
    assert_true(replayed.events > 0 && replayed.events < steps);
    assert_int_equal(replayed.wrong, 0);
    assert_true(replayed.torn > 0);
    folder_remove(folder);
}

/* The parts that are left tell what is missing, and a fresh core can be brought there. */
static void bound_holds_while_events_are_recorded(void **state)
{
    (void)state;
    char first[128];
    uint64_t steps;
    struct error error;
    char *folder = folder_make();
    bounded_folder = folder;
    bounded_bytes = 150000;
    play_long(folder, 7, bounded_bytes, 12000, &steps);
    bounded_folder = NULL;
    uint64_t bytes = bytes_in(folder, first);
    assert_true(bytes <= bounded_bytes && bytes > bounded_bytes / 3);
    struct record_reader *reader = record_open(first, &error);
    assert_non_null(reader);
    struct record_head head = *record_reader_head(reader);
    record_close(reader);
    assert_true(head.part > 0 && head.events > 0 && head.wall_ns > 77);
    struct replayed replayed = replay(first);
    assert_int_equal(head.events + replayed.events, steps);
    assert_true(replayed.restart > 3);
    assert_int_equal(replayed.torn, 0);
    folder_remove(folder);
}

static void oldest_runs_go_first(void **state)
{
    (void)state;
    char path[128];
    uint64_t steps;
    char *folder = folder_make();
    for (int epoch = 0; epoch < 3; epoch++) { /* former runs, older than 1 by their names */
        snprintf(path, sizeof path, "%s/events-0000000%c.log", folder, "+,-"[epoch]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(ftruncate(fileno(file), 120000), 0);
        fclose(file);
    }
    play(folder, 1, 500000, &steps); /* a third for itself: two of the others may stay */
    snprintf(path, sizeof path, "%s/events-0000000+.log", folder);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/events-0000000-.log", folder);
    assert_int_equal(access(path, F_OK), 0);
    folder_remove(folder);
}

/* ---- what rebuilds a core ---- */

/* A log of one further part that holds nothing but this. */
static void restart_save(const struct world *world, const char *path)
{
    struct record_restart nothing = {0};
    struct record_head head = {.part = 1, .events = world->rig->steps, .config = world->config};
    struct record_bytes contents[2] = {{0}, {0}};
    enum record_block kinds[2] = {RECORD_BLOCK_HEADER, RECORD_BLOCK_RESTART};
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    head.config.mode = core_mode_now(world->rig->core);
    record_head_write(&contents[0], &head);
    record_restart_write(&nothing, world->rig->core, world->rig->now_ns, &contents[1]);
    for (int i = 0; i < 2; i++) {
        struct record_bytes block;
        assert_true(record_block_pack(kinds[i], &contents[i], &block));
        assert_int_equal(fwrite(block.data, 1, block.length, file), block.length);
        record_bytes_fini(&contents[i]);
        record_bytes_fini(&block);
    }
    fclose(file);
}

static struct core *restart_load(const char *path)
{
    struct error error;
    struct record_item item;
    char broken[256];
    struct core_action *actions = NULL;
    struct record_reader *reader = record_open(path, &error);
    assert_non_null(reader);
    struct core *core = core_create(&record_reader_head(reader)->config);
    assert_non_null(core);
    while (record_next(reader, &item, &error) == 0 && item.kind == RECORD_EVENT) {
        assert_true(item.restart);
        actions = realloc(actions, core_actions_max(core) * sizeof *actions);
        assert_non_null(actions);
        core_step(core, &item.event, actions);
        assert_true(core_check(core, broken, sizeof broken));
    }
    assert_int_equal(item.kind, RECORD_END);
    free(actions);
    record_close(reader);
    return core;
}

static void compare_devices(const struct core *left, const struct core *right)
{
    struct core_device_view was, is;
    size_t count = 0;
    for (; core_device_at(left, count, &was); count++) {
        assert_true(core_device_at(right, count, &is));
        assert_int_equal(is.device, was.device);
        assert_int_equal(is.kind, was.kind);
        assert_int_equal(is.memory_bytes, was.memory_bytes);
        assert_int_equal(is.node, was.node);
        assert_int_equal(is.cordoned, was.cordoned);
        assert_int_equal(is.occupied, was.occupied);
        assert_int_equal(is.speed_permille, was.speed_permille);
        if (was.health == CORE_HEALTH_OK && was.hold == CORE_HOLD_HELD) {
            assert_int_equal(is.lease, was.lease);
            assert_int_equal(is.generation, was.generation);
        }
    }
    assert_false(core_device_at(right, count, &is));
}

static void compare_leases(const struct core *left, const struct core *right)
{
    struct core_lease_view was, is;
    for (size_t i = 0; core_lease_at(left, i, &was); i++) {
        bool there = was.state != CORE_LEASE_ENDED && was.state != CORE_LEASE_ENDING;
        bool found = core_lease_find(right, was.spec.lease, &is);
        assert_int_equal(found, there);
        if (there) {
            assert_memory_equal(&is.spec, &was.spec, sizeof is.spec);
        }
    }
}

static void compare_endpoints(const struct core *left, const struct core *right)
{
    struct core_endpoint_view was, is;
    for (size_t i = 0; core_endpoint_at(left, i, &was); i++) {
        assert_int_equal(core_endpoint_find(right, was.spec.endpoint, &is), !was.removing);
        if (!was.removing) {
            assert_memory_equal(&is.spec, &was.spec, sizeof is.spec);
        }
    }
}

static void compare_teams(const struct core *left, const struct core *right)
{
    struct core_team_view was, is;
    for (size_t i = 0; core_team_at(left, i, &was); i++) {
        if (was.added) {
            assert_true(core_team_find(right, was.spec.team, &is));
            assert_memory_equal(&is.spec, &was.spec, sizeof is.spec);
        }
    }
}

static void restart_tells_a_fresh_core_what_there_is(void **state)
{
    (void)state;
    char path[128];
    char *folder = folder_make();
    path_of(folder, path);
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct world *world = world_prepare(seed, false, NULL);
        world_begin(world);
        world_play(world, 10 + seed * 13);
        printf("%s%" PRIu64, seed == 1 ? "seeds " : ", ", seed);
        restart_save(world, path);
        struct core *core = restart_load(path);
        assert_int_equal(core_hold_now(core), core_hold_now(world->rig->core));
        assert_int_equal(core_mode_now(core), core_mode_now(world->rig->core));
        compare_devices(world->rig->core, core);
        compare_leases(world->rig->core, core);
        compare_endpoints(world->rig->core, core);
        compare_teams(world->rig->core, core);
        core_destroy(core);
        world_destroy(world);
    }
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_events_give_the_recorded_actions),
        cmocka_unit_test(cut_or_damaged_tail_costs_only_itself),
        cmocka_unit_test(parts_are_read_as_one_log),
        cmocka_unit_test(bound_holds_while_events_are_recorded),
        cmocka_unit_test(oldest_runs_go_first),
        cmocka_unit_test(restart_tells_a_fresh_core_what_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

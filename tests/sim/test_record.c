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
#include "server/record/writer.h"
#include "tests/sim/world_state.h"

static struct record_writer *writer;
static void (*checked)(struct rig *rig, const struct core_event *event);

static void on_step(struct rig *rig, const struct core_event *event)
{
    checked(rig, event);
    record_writer_event(writer, rig->core, event);
    record_writer_flush(writer, rig->core, rig->now_ns);
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
static uint64_t play(const char *folder, uint64_t seed, uint64_t bytes_max, uint64_t *ret_steps)
{
    struct error error;
    struct world *world = world_prepare(seed, false, NULL);
    struct record_options options = {.directory = folder, .bytes_max = bytes_max, .wall_ns = 77};
    writer = record_writer_create(&options, &world->config, &error);
    assert_non_null(writer);
    checked = world->rig->on_step;
    world->rig->on_step = on_step;
    world_begin(world);
    world_play(world, 2000);
    world_settle(world);
    uint64_t hash = core_hash(world->rig->core);
    *ret_steps = world->rig->steps;
    record_writer_destroy(writer, world->rig->core);
    world_destroy(world);
    return hash;
}

struct replayed {
    uint64_t events, hashes, wrong, torn;
    uint64_t hash; /* at the end */
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
    assert_int_equal(record_reader_head(reader)->wall_ns, 77);
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
        replayed.events++;
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
    snprintf(path, 128, "%s/events-00000001.log", folder);
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

static void log_ends_whole_at_its_share_of_the_bound(void **state)
{
    (void)state;
    char path[128];
    uint64_t steps;
    struct stat info;
    char *folder = folder_make();
    play(folder, 5, 40000, &steps);
    path_of(folder, path);
    struct replayed replayed = replay(path);
    assert_true(replayed.events > 0 && replayed.events < steps);
    assert_int_equal(replayed.wrong, 0);
    assert_int_equal(replayed.torn, 0);
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size <= 20000);
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
        assert_int_equal(ftruncate(fileno(file), 100000), 0);
        fclose(file);
    }
    play(folder, 1, 500000, &steps); /* 250000 for itself: two of the others may stay */
    snprintf(path, sizeof path, "%s/events-0000000+.log", folder);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/events-0000000-.log", folder);
    assert_int_equal(access(path, F_OK), 0);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_events_give_the_recorded_actions),
        cmocka_unit_test(cut_or_damaged_tail_costs_only_itself),
        cmocka_unit_test(log_ends_whole_at_its_share_of_the_bound),
        cmocka_unit_test(oldest_runs_go_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_replay.c: clients/sim/replay.c, what_if.c: a log repeats its actions, a changed one is
 * noticed, and other settings meet the same load. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/sim/replay.h"
#include "server/record/writer.h"

#define MS(n) ((uint64_t)(n)*UINT64_C(1000000))

struct server {
    char folder[64], path[128];
    struct record_writer *writer;
    struct core *core;
    uint64_t now_ns;
    uint64_t grants;
};

static void tell(struct server *server, struct core_event event);

/* Answers at once what the core asks for. */
static void answer(struct server *server, const struct core_action *action)
{
    struct core_event event = {.kind = CORE_EVENT_ACTION_DONE};
    event.answer.action = action->id;
    switch (action->kind) {
    case CORE_ACTION_PLACE:
    case CORE_ACTION_REMOVE:
        event.kind = action->kind == CORE_ACTION_PLACE ? CORE_EVENT_INSTANCE_READY
                                                       : CORE_EVENT_INSTANCE_STOPPED;
        event.instance.endpoint = action->instance.endpoint;
        event.instance.device = action->instance.device;
        break;
    case CORE_ACTION_GRANT:
        event.answer.device = action->grant.device;
        server->grants++;
        break;
    case CORE_ACTION_REVOKE:
        event.kind = CORE_EVENT_REVOKE_ACKNOWLEDGED;
        event.answer.device = action->revoke.device;
        break;
    case CORE_ACTION_VERIFY:
        event.kind = CORE_EVENT_RELEASE_VERIFIED;
        event.verified.device = action->device.device;
        event.verified.gone = true;
        break;
    default:
        return;
    }
    tell(server, event);
}

static void tell(struct server *server, struct core_event event)
{
    struct core_action *actions = malloc(core_actions_max(server->core) * sizeof *actions);
    assert_non_null(actions);
    server->now_ns += MS(1);
    event.time_ns = server->now_ns;
    size_t count = core_step(server->core, &event, actions);
    record_writer_event(server->writer, server->core, &event);
    record_writer_flush(server->writer, server->core, server->now_ns);
    for (size_t i = 0; i < count; i++) {
        answer(server, &actions[i]);
    }
    free(actions);
}

/* 40 s of load that comes and goes every 5 s, beside a job that wants both devices. */
static void live(struct server *server)
{
    struct core_event event = {.kind = CORE_EVENT_LEASE_REQUESTED};
    event.lease_spec = (struct core_lease_spec){.lease = 1,
                                                .devices_min = 1,
                                                .devices_max = 2,
                                                .kinds_mask = 1,
                                                .preemptible = true,
                                                .in_process = true};
    tell(server, event);
    for (int step = 0; step < 400; step++) {
        bool busy = step / 50 % 2 == 1;
        server->now_ns += MS(97);
        for (uint64_t device = 1; device <= 2; device++) {
            event = (struct core_event){.kind = CORE_EVENT_DEVICE_SAMPLE};
            event.device_sample.device = device;
            event.device_sample.interval_ns = MS(100);
            event.device_sample.serving_ns = busy ? MS(96) : 0;
            tell(server, event);
        }
        event = (struct core_event){.kind = CORE_EVENT_ENDPOINT_SAMPLE};
        event.endpoint_sample.endpoint = 1;
        event.endpoint_sample.interval_ns = MS(100);
        event.endpoint_sample.arrivals = busy ? 48 : 0;
        event.endpoint_sample.busy_ns = busy ? MS(190) : 0;
        tell(server, event);
    }
}

static struct server *server_lived(uint64_t bytes_max)
{
    struct server *server = calloc(1, sizeof *server);
    struct core_config config;
    struct error error;
    core_config_init(&config);
    config.store_epoch = 9;
    config.seed[0] = 4;
    strcpy(server->folder, "/tmp/tidepool-replay-XXXXXX");
    assert_non_null(mkdtemp(server->folder));
    snprintf(server->path, sizeof server->path, "%s/events-00000009-000000.log", server->folder);
    struct record_options options = {.directory = server->folder, .bytes_max = bytes_max};
    server->core = core_create(&config);
    server->writer = record_writer_create(&options, &config, &error);
    assert_non_null(server->writer);
    server->now_ns = MS(1000);
    for (uint64_t device = 1; device <= 2; device++) {
        struct core_event event = {.kind = CORE_EVENT_DEVICE_ADDED};
        event.device_added.device = device;
        tell(server, event);
    }
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_ADDED};
    event.endpoint_spec = (struct core_endpoint_spec){.endpoint = 1,
                                                      .slo_ns = MS(20),
                                                      .target_permille = 990,
                                                      .devices_min = 1,
                                                      .devices_max = 2,
                                                      .kinds_mask = 1};
    tell(server, event);
    tell(server, (struct core_event){.kind = CORE_EVENT_RECONCILE_DONE});
    live(server);
    record_writer_destroy(server->writer, server->core);
    return server;
}

static void server_free(struct server *server)
{
    core_destroy(server->core);
    unlink(server->path);
    rmdir(server->folder);
    free(server);
}

static int server_live(void **state)
{
    *state = server_lived(1 << 26);
    return 0;
}

static int server_gone(void **state)
{
    server_free(*state);
    return 0;
}

static void replay_repeats_the_actions_and_their_hash(void **state)
{
    const struct server *server = *state;
    struct replay replay;
    struct error error;
    assert_int_equal(replay_run(server->path, NULL, 0, &replay, &error), 0);
    assert_true(replay.same);
    assert_true(replay.hashes >= 20); /* one a second at least */
    assert_int_equal(replay.recorded.hash, core_hash(server->core));
    assert_int_equal(replay.recorded.actions[CORE_ACTION_GRANT], server->grants);
    assert_true(replay.recorded.actions[CORE_ACTION_REVOKE] >= 2);
    assert_false(replay.has_other);
    json_t *document = replay_json(&replay);
    assert_true(json_is_true(json_object_get(document, "same")));
    json_decref(document);
}

static void other_settings_meet_the_same_load(void **state)
{
    const struct server *server = *state;
    struct replay same, calm;
    struct error error;
    const char *const as_before[] = {"hold_min_ns=1000000000"};
    const char *const patient[] = {"shrink_after_ns=20000000000"};
    assert_int_equal(replay_run(server->path, as_before, 1, &same, &error), 0);
    assert_true(same.has_other && same.same);
    /* The same settings come to the same moves, whoever answers. */
    assert_int_equal(same.other.actions[CORE_ACTION_REVOKE],
                     same.recorded.actions[CORE_ACTION_REVOKE]);
    assert_int_equal(same.other.actions[CORE_ACTION_GRANT],
                     same.recorded.actions[CORE_ACTION_GRANT]);
    assert_int_equal(replay_run(server->path, patient, 1, &calm, &error), 0);
    assert_true(calm.same);
    assert_int_equal(calm.other.actions[CORE_ACTION_REVOKE], 0);
    assert_true(calm.other.ledger.account_ns[CORE_ACCOUNT_SERVING] > 0);
}

static void part_without_those_before_it_is_rebuilt(void **state)
{
    (void)state;
    struct server *server = server_lived(60000);
    struct replay whole, part;
    struct error error;
    char second[160];
    const char *const observe[] = {"mode=0"};
    snprintf(second, sizeof second, "%s/events-00000009-000001.log", server->folder);
    assert_int_equal(replay_run(server->path, NULL, 0, &whole, &error), 0);
    assert_true(whole.same && whole.part == 0);
    assert_int_equal(replay_run(second, observe, 1, &part, &error), 0);
    assert_true(!part.same && part.part == 1 && part.hashes == 0);
    assert_true(part.events_before > 100 && part.recorded.events > 100);
    assert_true(part.recorded.first_ns > whole.recorded.first_ns);
    assert_true(part.recorded.last_ns <= whole.recorded.last_ns);
    /* The load still comes and goes, and the job with it. */
    assert_true(part.recorded.actions[CORE_ACTION_REVOKE] >= 1);
    assert_true(part.recorded.ledger.account_ns[CORE_ACCOUNT_SERVING] > 0);
    assert_true(part.recorded.ledger.account_ns[CORE_ACCOUNT_TRAINING] > 0);
    assert_int_equal(part.other.actions[CORE_ACTION_GRANT], 0);
    json_t *document = replay_json(&part);
    assert_int_equal(json_integer_value(json_object_get(document, "part")), 1);
    assert_true(json_is_false(json_object_get(document, "same")));
    json_decref(document);
    unlink(second);
    server_free(server);
}

static void setting_that_is_none_is_named(void **state)
{
    const struct server *server = *state;
    struct replay replay;
    struct error error;
    const char *const wrong[] = {"hold_min_ns=soon", "patience=4", "mode", "moves_per_hour=-1",
                                 "load_low_permille=5000"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(replay_run(server->path, &wrong[i], 1, &replay, &error),
                         -ERROR_INVALID_ARGUMENT);
    }
}

/* As a scheduler of another version would: it is given another seed. */
static void actions_that_differ_are_noticed(void **state)
{
    const struct server *server = *state;
    struct replay replay;
    struct error error;
    struct record_item item;
    char path[160];
    snprintf(path, sizeof path, "%s/other.log", server->folder);
    struct record_reader *reader = record_open(server->path, &error);
    struct record_head head = *record_reader_head(reader);
    struct record_bytes bytes = {0}, block;
    head.config.seed[0]++;
    FILE *file = fopen(path, "wb");
    record_head_write(&bytes, &head);
    assert_true(record_block_pack(RECORD_BLOCK_HEADER, &bytes, &block));
    fwrite(block.data, 1, block.length, file);
    record_bytes_fini(&bytes);
    record_bytes_fini(&block);
    uint64_t before_ns = 0;
    while (record_next(reader, &item, &error) == 0 && item.kind != RECORD_END) {
        if (item.kind == RECORD_EVENT) {
            record_event_write(&bytes, &item.event, &before_ns);
        } else {
            record_hash_write(&bytes, item.hash);
        }
    }
    assert_true(record_block_pack(RECORD_BLOCK_EVENTS, &bytes, &block));
    fwrite(block.data, 1, block.length, file);
    record_bytes_fini(&bytes);
    record_bytes_fini(&block);
    fclose(file);
    record_close(reader);
    assert_int_equal(replay_run(path, NULL, 0, &replay, &error), 0);
    unlink(path);
    assert_false(replay.same);
    assert_true(replay.wrong_at > 0);
}

static void file_that_is_no_log_is_refused(void **state)
{
    (void)state;
    struct replay replay;
    struct error error;
    assert_int_equal(replay_run("Makefile", NULL, 0, &replay, &error), -ERROR_DATA_LOSS);
    assert_int_equal(replay_run("no/such/file", NULL, 0, &replay, &error), -ERROR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replay_repeats_the_actions_and_their_hash),
        cmocka_unit_test(other_settings_meet_the_same_load),
        cmocka_unit_test(part_without_those_before_it_is_rebuilt),
        cmocka_unit_test(setting_that_is_none_is_named),
        cmocka_unit_test(actions_that_differ_are_noticed),
        cmocka_unit_test(file_that_is_no_log_is_refused),
    };
    return cmocka_run_group_tests(tests, server_live, server_gone);
}

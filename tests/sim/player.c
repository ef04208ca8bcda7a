/* player.c: see player.h. */
#include "tests/sim/player.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/words.h"

static void on_event(struct rig *rig, const struct core_event *event)
{
    checks_event(((struct player *)rig->context)->checks, event);
}

static void on_step(struct rig *rig, const struct core_event *event)
{
    struct player *player = rig->context;
    for (size_t i = 0; i < rig->count && player->show != NULL; i++) {
        expect_print(&rig->actions[i], player->show);
    }
    checks_step(player->checks, event);
    if (player->window_count + rig->count > player->window_capacity) {
        player->window_capacity = (player->window_count + rig->count) * 2;
        player->window = realloc(player->window, player->window_capacity * sizeof *player->window);
        assert_non_null(player->window);
    }
    memcpy(player->window + player->window_count, rig->actions, rig->count * sizeof *rig->actions);
    player->window_count += rig->count;
}

/* Until just before the time, so that what the line says comes before what that moment brings. */
static void pass_until(struct player *player, uint64_t time_ns)
{
    uint64_t at_ns = SCRIPT_BEGIN_NS + time_ns;
    if (at_ns > player->rig->now_ns) {
        rig_run(player->rig, at_ns - player->rig->now_ns - 1);
        player->rig->now_ns = at_ns;
    }
}

static void crash(struct player *player)
{
    player->config.store_epoch++;
    player->config.generation = player->checks->generation;
    core_destroy(player->rig->core);
    player->rig->core = core_create(&player->config);
    assert_non_null(player->rig->core);
    player->rig->timer_ns = 0;
    checks_crash(player->checks, &player->config);
}

/* "off", or any of answer=1ms place=20ms release=2ms resume=1ms. */
static void set_shell(struct player *player)
{
    char text[256], *save = NULL;
    const struct {
        const char *name;
        uint64_t *delay_ns;
    } delays[] = {
        {"answer=", &player->rig->answer_ns},
        {"place=", &player->rig->place_ns},
        {"release=", &player->rig->release_ns},
    };
    snprintf(text, sizeof text, "%s", player->line->text);
    player->rig->answers = true;
    for (char *word = strtok_r(text, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        bool known = strcmp(word, "off") == 0 || strcmp(word, "on") == 0;
        player->rig->answers = strcmp(word, "off") != 0;
        for (size_t i = 0; i < sizeof delays / sizeof *delays; i++) {
            size_t length = strlen(delays[i].name);
            known = known || (strncmp(word, delays[i].name, length) == 0 &&
                              word_span(word + length, delays[i].delay_ns));
        }
        if (!known) {
            fail_msg("%s:%" PRIu32 ": the shell has no '%s'", player->name, player->line->number,
                     word);
        }
    }
}

static void show_line(const struct player *player)
{
    if (player->show != NULL) {
        fprintf(player->show, "%5" PRIu32 " %12.6f s ", player->line->number,
                (double)player->line->time_ns / 1e9);
        script_write_line(player->line, player->line->time_ns, player->show);
    }
}

static void play(struct player *player)
{
    const struct script_line *line = player->line;
    struct core_event event;
    if (line->what == SCRIPT_EVENT || line->what == SCRIPT_WAIT || line->what == SCRIPT_CRASH) {
        player->window_count = 0;
    }
    pass_until(player, line->time_ns);
    switch (line->what) {
    case SCRIPT_EVENT:
        if (script_resolve(line, &player->checks->history, player->rig->core, &event)) {
            show_line(player);
            rig_send(player->rig, event);
        }
        break;
    case SCRIPT_CRASH:
        crash(player);
        break;
    case SCRIPT_WAIT:
        rig_run(player->rig, 0);
        break;
    case SCRIPT_SHELL:
        set_shell(player);
        break;
    case SCRIPT_EXPECT:
    case SCRIPT_EXPECT_NOT:
        expect_action(player, line->what == SCRIPT_EXPECT_NOT);
        break;
    case SCRIPT_STATE:
        expect_state(player);
        break;
    case SCRIPT_WHY:
        expect_why(player);
        break;
    case SCRIPT_SETTLED:
        rig_run(player->rig, 0);
        checks_settled(player->checks);
        break;
    }
}

void player_run(const struct script *script, const char *name, FILE *show)
{
    struct player player = {.script = script, .name = name, .config = script->config, .show = show};
    if (player.config.store_epoch == 0) {
        player.config.store_epoch = 1;
    }
    player.rig = rig_create(&player.config);
    player.checks = checks_create(player.rig, &player.config);
    player.rig->answers = false;
    player.rig->context = &player;
    player.rig->on_event = on_event;
    player.rig->on_step = on_step;
    for (size_t i = 0; i < script->count; i++) {
        player.line = &script->lines[i];
        snprintf(player.rig->place, RIG_PLACE_MAX, "%s:%" PRIu32, name, player.line->number);
        play(&player);
    }
    free(player.window);
    checks_destroy(player.checks);
    rig_destroy(player.rig);
}

/* test_scenarios.c: plays the scenario files: all of tests/sim/scenarios, or those that are named.
 * TIDEPOOL_SIM_SHOW=1 prints what the core does. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/player.h"

#define FOLDER "tests/sim/scenarios"

static void play_file(void **state)
{
    const char *path = *state;
    char error[256];
    struct script script = {0};
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fail_msg("%s: not to be read", path);
    }
    bool right = script_read(&script, file, error, sizeof error);
    fclose(file);
    if (!right) {
        fail_msg("%s: %s", path, error);
    }
    assert_true(script.count > 0);
    player_run(&script, path, getenv("TIDEPOOL_SIM_SHOW") != NULL ? stdout : NULL);
    script_fini(&script);
}

static int is_scenario(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot != NULL && strcmp(dot, ".scenario") == 0;
}

static size_t list_folder(char ***ret_paths)
{
    struct dirent **entries;
    int count = scandir(FOLDER, &entries, is_scenario, alphasort);
    if (count <= 0) {
        perror(FOLDER);
        exit(1);
    }
    *ret_paths = calloc((size_t)count, sizeof **ret_paths);
    for (int i = 0; i < count; i++) {
        size_t length = strlen(FOLDER) + strlen(entries[i]->d_name) + 2;
        (*ret_paths)[i] = malloc(length);
        snprintf((*ret_paths)[i], length, "%s/%s", FOLDER, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return (size_t)count;
}

int main(int argc, char **argv)
{
    char **paths = argv + 1;
    bool named = argc > 1;
    size_t count = named ? (size_t)argc - 1 : list_folder(&paths);
    struct CMUnitTest *tests = calloc(count, sizeof *tests);
    for (size_t i = 0; i < count; i++) {
        tests[i].name = paths[i];
        tests[i].test_func = play_file;
        tests[i].initial_state = paths[i];
    }
    int failed = _cmocka_run_group_tests("scenarios", tests, count, NULL, NULL);
    for (size_t i = 0; i < count && !named; i++) {
        free(paths[i]);
    }
    if (!named) {
        free(paths);
    }
    free(tests);
    return failed;
}

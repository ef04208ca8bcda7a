/* trial.c: see trial.h. */
#include "tests/sim/trial.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct trial trial_begin(void (*run)(void *context), void *context, unsigned seconds)
{
    struct trial trial = {.output = memfd_create("trial", 0)};
    fflush(NULL);
    trial.pid = trial.output >= 0 ? fork() : -1;
    if (trial.pid < 0) {
        perror("start a trial");
        exit(1);
    }
    if (trial.pid == 0) {
        dup2(trial.output, STDERR_FILENO);
        setenv("CMOCKA_TEST_ABORT", "1", 1); /* a failed check ends this process, not a test */
        alarm(seconds);
        run(context);
        fflush(NULL);
        _exit(0);
    }
    return trial;
}

/* What comes after the seed, or the line of an assertion, without numbers. */
static void reason_of(const char *text, char reason[TRIAL_TEXT_MAX])
{
    static const char *const marks[] = {"seed ",
                                        "runtime error: ", "AddressSanitizer: ", "Assertion "};
    const char *from = text;
    for (size_t i = 0; i < sizeof marks / sizeof *marks && from == text; i++) {
        const char *found = strstr(text, marks[i]);
        from = found != NULL ? found : from;
    }
    size_t length = 0;
    for (; *from != 0 && *from != '\n' && length + 1 < TRIAL_TEXT_MAX; from++) {
        reason[length] = *from;
        length += !isdigit((unsigned char)*from);
    }
    reason[length] = 0;
    char *address = strstr(reason, " on address");
    if (address != NULL) {
        *address = 0;
    }
}

void trial_wait(struct trial *trial, struct trial_end *ret_end)
{
    int status = 0;
    while (waitpid(trial->pid, &status, 0) < 0) {
    }
    memset(ret_end, 0, sizeof *ret_end);
    ret_end->failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    ssize_t length = pread(trial->output, ret_end->text, sizeof ret_end->text - 1, 0);
    ret_end->text[length > 0 ? length : 0] = 0;
    if (ret_end->failed && length <= 0) {
        snprintf(ret_end->text, sizeof ret_end->text, "ended by signal %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    reason_of(ret_end->text, ret_end->reason);
    close(trial->output);
}

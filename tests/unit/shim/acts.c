#include "tests/unit/shim/acts.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS_MAX 60
#define CHAIN_SECONDS 20

static void say_pid(void)
{
    char line[32];
    int length = snprintf(line, sizeof(line), "pid %d\n", getpid());
    (void)!write(1, line, (size_t)length);
}

static _Noreturn void stay(void)
{
    (void)alarm(SECONDS_MAX);
    say_pid();
    for (;;) {
        (void)pause();
    }
}

/* CP-1: a child, one in its own group, one in its own session, one forked twice; then "ready". */
static void act_tree(const char *argument)
{
    if (strcmp(argument, "deaf") == 0) {
        (void)signal(SIGTERM, SIG_IGN);
    }
    if (fork() == 0) {
        stay();
    }
    if (fork() == 0) {
        (void)setpgid(0, 0);
        stay();
    }
    if (fork() == 0) {
        (void)setsid();
        stay();
    }
    if (fork() == 0) {
        (void)setsid();
        if (fork() == 0) {
            (void)setsid();
            stay();
        }
        _exit(0);
    }
    (void)alarm(SECONDS_MAX);
    if (strcmp(argument, "leave") == 0) {
        /* When all have spoken, the leader goes. */
        (void)usleep(300000);
        _exit(7);
    }
    stay();
}

static void act_many(const char *argument)
{
    (void)signal(SIGTERM, SIG_IGN);
    for (long left = strtol(argument, NULL, 10); left > 0; left--) {
        if (fork() == 0) {
            (void)alarm(SECONDS_MAX);
            for (;;) {
                (void)pause();
            }
        }
    }
    (void)!write(1, "ready\n", 6);
    stay();
}

/* Each lives for a moment and leaves another: nobody stays to be looked at. */
static void act_chain(const char *argument)
{
    time_t end = time(NULL) + CHAIN_SECONDS;
    (void)argument;
    (void)signal(SIGTERM, SIG_IGN);
    (void)!write(1, "ready\n", 6);
    if (fork() != 0) {
        stay();
    }
    while (time(NULL) < end) {
        pid_t next = fork();
        if (next != 0) {
            _exit(0);
        }
        (void)usleep(500);
    }
    _exit(0);
}

static void *spin(void *counter)
{
    for (;;) {
        __atomic_add_fetch((uint64_t *)counter, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Eight threads that never rest, and count in a file. */
static void act_spin(const char *argument)
{
    int fd = open(argument, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint64_t *counter;
    if (fd < 0 || ftruncate(fd, 4096) < 0) {
        _exit(1);
    }
    counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 8; i++) {
        pthread_t thread;
        (void)pthread_create(&thread, NULL, spin, counter);
    }
    (void)!write(1, "ready\n", 6);
    stay();
}

/* As "chain", each in a session of its own: no signal to a group finds it. */
static void act_flight(const char *argument)
{
    time_t end = time(NULL) + CHAIN_SECONDS;
    (void)argument;
    (void)signal(SIGTERM, SIG_IGN);
    (void)!write(1, "ready\n", 6);
    if (fork() != 0) {
        stay();
    }
    while (time(NULL) < end) {
        pid_t next = fork();
        if (next != 0) {
            _exit(0);
        }
        (void)setsid();
        (void)usleep(500);
    }
    _exit(0);
}

/* Every process forks for as long as it may; what it may is the job's limit. */
static void act_bomb(const char *argument)
{
    time_t end = time(NULL) + CHAIN_SECONDS;
    (void)argument;
    (void)signal(SIGTERM, SIG_IGN);
    (void)!write(1, "ready\n", 6);
    while (time(NULL) < end) {
        if (fork() < 0) {
            (void)usleep(200);
        }
    }
    _exit(0);
}

static void act_write(const char *argument)
{
    static char block[1 << 16];
    memset(block, 'x', sizeof(block));
    for (size_t i = 99; i < sizeof(block); i += 100) {
        block[i] = '\n';
    }
    for (long left = strtol(argument, NULL, 10); left > 0;) {
        ssize_t written =
            write(1, block, left < (long)sizeof(block) ? (size_t)left : sizeof(block));
        if (written <= 0) {
            _exit(1);
        }
        left -= written;
    }
    (void)!write(2, "the last line\n", 14);
    _exit(0);
}

static volatile sig_atomic_t asked;

static void on_term(int number)
{
    (void)number;
    asked = 1;
}

/* CP-4: 200 lines after TERM. */
static void act_talk(const char *argument)
{
    (void)argument;
    (void)alarm(SECONDS_MAX);
    (void)signal(SIGTERM, on_term);
    (void)!write(1, "ready\n", 6);
    while (!asked) {
        (void)usleep(1000);
    }
    for (int i = 1; i <= 200; i++) {
        (void)printf("line %d\n", i);
    }
    (void)fflush(stdout);
    _exit(0);
}

/* Output to nowhere; lives on. */
static void act_close(const char *argument)
{
    (void)argument;
    say_pid();
    for (int fd = 0; fd < 3; fd++) {
        (void)close(fd);
    }
    (void)alarm(SECONDS_MAX);
    for (;;) {
        (void)pause();
    }
}

/* Cores are told every time they change; threads come and go all the while. */
static void *rest(void *arg)
{
    (void)usleep(2000);
    return arg;
}

static void act_threads(const char *argument)
{
    (void)argument;
    (void)alarm(SECONDS_MAX);
    (void)!write(1, "ready\n", 6);
    for (;;) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) {
            (void)pthread_create(&threads[i], NULL, rest, NULL);
        }
        for (int i = 0; i < 4; i++) {
            (void)pthread_join(threads[i], NULL);
        }
    }
}

static void act_stay(const char *argument)
{
    (void)argument;
    stay();
}

static void act_exit(const char *argument)
{
    _exit((int)strtol(argument, NULL, 10));
}

void act_if_asked(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*act)(const char *argument);
    } acts[] = {
        {"tree", act_tree},       {"many", act_many}, {"chain", act_chain},
        {"flight", act_flight},   {"bomb", act_bomb}, {"spin", act_spin},
        {"write", act_write},     {"talk", act_talk}, {"close", act_close},
        {"threads", act_threads}, {"stay", act_stay}, {"exit", act_exit},
    };
    for (size_t i = 0; count > 1 && i < sizeof(acts) / sizeof(acts[0]); i++) {
        if (strcmp(arguments[1], acts[i].name) == 0) {
            acts[i].act(count > 2 ? arguments[2] : "");
            _exit(0);
        }
    }
}

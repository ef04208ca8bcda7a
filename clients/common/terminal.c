#include "clients/common/terminal.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "server/base/clock.h"

static struct termios terminal_before;
static volatile sig_atomic_t terminal_entered;

struct terminal_size terminal_size(int fd)
{
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20 && size.ws_row >= 5) {
        return (struct terminal_size){size.ws_col, size.ws_row};
    }
    return (struct terminal_size){100, 30};
}

bool terminal_has_colour(int fd)
{
    const char *kind = getenv("TERM");
    const char *none = getenv("NO_COLOR");
    return isatty(fd) && kind != NULL && strcmp(kind, "dumb") != 0 &&
           (none == NULL || none[0] == '\0');
}

static void terminal_say(const char *text)
{
    ssize_t written = write(STDOUT_FILENO, text, strlen(text));
    (void)written; /* a terminal that is gone cannot be told anything */
}

bool terminal_enter(void)
{
    struct termios raw;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) ||
        tcgetattr(STDIN_FILENO, &terminal_before) < 0) {
        return false;
    }
    raw = terminal_before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) < 0) {
        return false;
    }
    terminal_entered = 1;
    terminal_say("\033[?1049h\033[?25l\033[H\033[2J");
    return true;
}

void terminal_leave(void)
{
    if (terminal_entered) {
        terminal_entered = 0;
        terminal_say("\033[?25h\033[?1049l");
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
    }
}

int terminal_key(void)
{
    unsigned char key;
    return terminal_entered && read(STDIN_FILENO, &key, 1) == 1 ? key : -1;
}

unsigned text_write(FILE *out, const char *text, unsigned columns)
{
    unsigned used = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        bool continues = (*p & 0xc0) == 0x80;
        if (!continues && used == columns) {
            break;
        }
        used += continues ? 0 : 1;
        putc(*p < 0x20 || *p == 0x7f ? '?' : *p, out);
    }
    return used;
}

void text_pad(FILE *out, const char *text, unsigned columns)
{
    for (unsigned used = text_write(out, text, columns); used < columns; used++) {
        putc(' ', out);
    }
}

const char *text_duration(struct text_small *buffer, uint64_t ns)
{
    uint64_t seconds = ns / NS_PER_S;
    if (ns < NS_PER_MS) {
        snprintf(buffer->text, sizeof(buffer->text), "%.0f µs", (double)ns / 1e3);
    } else if (ns < NS_PER_S) {
        snprintf(buffer->text, sizeof(buffer->text), "%.3g ms", (double)ns / 1e6);
    } else if (seconds < 60) {
        snprintf(buffer->text, sizeof(buffer->text), "%.1f s", (double)ns / 1e9);
    } else if (seconds < 3600) {
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 " min %" PRIu64 " s", seconds / 60,
                 seconds % 60);
    } else if (seconds < 86400) {
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 " h %" PRIu64 " min",
                 seconds / 3600, seconds / 60 % 60);
    } else {
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 " d %" PRIu64 " h", seconds / 86400,
                 seconds / 3600 % 24);
    }
    return buffer->text;
}

const char *text_bytes(struct text_small *buffer, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    unsigned unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++) {
        value /= 1024;
    }
    snprintf(buffer->text, sizeof(buffer->text), unit == 0 ? "%.0f %s" : "%.1f %s", value,
             units[unit]);
    return buffer->text;
}

const char *text_figure(struct text_small *buffer, double value, int digits)
{
    if (!isfinite(value)) {
        return "-";
    }
    snprintf(buffer->text, sizeof(buffer->text), "%.*f", digits, value);
    return buffer->text;
}

const char *text_wall(struct text_small *buffer, uint64_t wall_ns)
{
    time_t seconds = (time_t)(wall_ns / NS_PER_S);
    struct tm parts;
    localtime_r(&seconds, &parts);
    size_t length = strftime(buffer->text, sizeof(buffer->text), "%H:%M:%S", &parts);
    snprintf(buffer->text + length, sizeof(buffer->text) - length, ".%03u",
             (unsigned)(wall_ns / NS_PER_MS % 1000));
    return buffer->text;
}

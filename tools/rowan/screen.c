/* screen.c - see screen.h. The sequences are ECMA-48's and xterm's, which all terminals of today know: 1049 is the other
 * screen, 25 the cursor, H home, K and J clear the rest of the line and of the screen. */
#include "tools/rowan/screen.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "common/base/error.h"

enum { CTRL_C = 3, ROWS = 24, COLUMNS = 80 };

static volatile sig_atomic_t told_to_end;
static bool is_terminal, has_keys, began;
static struct termios before;

static void on_signal(int number)
{
    (void)number;
    told_to_end = 1;
}

/* Keys come one by one and are not shown; Ctrl-C is one of them, and so is Ctrl-Z, which would leave a terminal that is
 * not as it was. */
static void take_keys(void)
{
    has_keys = is_terminal && isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    if (!has_keys)
        return;
    struct termios raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    has_keys = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

void screen_open(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    is_terminal = isatty(STDOUT_FILENO);
    take_keys();
    if (is_terminal)
        fputs("\x1b[?1049h\x1b[?25l", stdout);
}

void screen_close(void)
{
    if (is_terminal)
        fputs("\x1b[?25h\x1b[?1049l", stdout);
    fflush(stdout);
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static void draw(const char *text, const char *end)
{
    struct winsize size = {.ws_row = ROWS, .ws_col = COLUMNS};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = ROWS, .ws_col = COLUMNS};
    fputs("\x1b[H", stdout);
    for (unsigned row = 0; row < size.ws_row && text < end; row++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const size_t bytes = (size_t)((newline ? newline : end) - text);
        fputs(row ? "\n" : "", stdout);
        fwrite(text, 1, bytes < size.ws_col ? bytes : size.ws_col, stdout);
        /* In the last column the cursor stands on the last character. */
        fputs(bytes < size.ws_col ? "\x1b[K" : "", stdout);
        text = newline ? newline + 1 : end;
    }
    fputs("\x1b[J", stdout);
}

int screen_show(const char *text, size_t bytes)
{
    if (is_terminal) {
        draw(text, text + bytes);
    } else {
        fputs(began ? "\f\n" : "", stdout);
        fwrite(text, 1, bytes, stdout);
        began = true;
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : ROWAN_EIO;
}

bool screen_is_left(void)
{
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    char key;
    while (has_keys && !told_to_end && poll(&keys, 1, 0) > 0) {
        if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q' || key == CTRL_C)
            told_to_end = 1; /* or the terminal has gone */
    }
    return told_to_end != 0;
}

/* config.h - settings from an INI file and the command line: every key of the file can be given as
 * `--key value` (or `--key=value`), which wins. The file's section is the program's name.
 *
 * A program describes its settings in a table. Parsing, range checks, the sentence for each mistake,
 * `--help` (with units and defaults) and `--version` come from it.
 */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum config_type {
    CONFIG_STRING, /* const char *: points into memory that config_free releases */
    CONFIG_U64,    /* uint64_t, in [min, max]; accepts the suffixes K M G T (powers of 1024) */
    CONFIG_BOOL,   /* bool: yes no true false 1 0; a bare `--key` on the command line is yes */
    CONFIG_CHOICE, /* uint64_t: the number of the word in `choices` ("fence|async|none") */
};

/* When a key changes, if not at a restart only: added to its type (CONFIG_U64 | CONFIG_LIVE). */
enum {
    CONFIG_LIVE = 0x10, /* while the program runs, too (config_live.h) */
    CONFIG_MADE = 0x20, /* never: it is fixed when the cluster is made */
    CONFIG_TYPES = 0xf,
};

struct config_key {
    const char *name;     /* "pm-bytes" */
    unsigned type;        /* enum config_type, and when it changes */
    size_t offset;        /* of the field in the caller's struct */
    const char *fallback; /* the default as text; NULL: the key is required */
    uint64_t min, max;    /* CONFIG_U64 only */
    const char *choices;  /* CONFIG_CHOICE only */
    const char *help;     /* one line, with the unit */
};

struct config_spec {
    const char *program;    /* "rowan-server" */
    const char *release;    /* for --version: ROWAN_RELEASE of release.h */
    const char *summary;    /* one line for --help */
    const char *positional; /* usage text of what else may stand there ("get KEY | ..."), or NULL */
    const struct config_key *keys;
    unsigned key_count;
};

/* What a parse left behind: positional arguments (pointers into the caller's argv, NULL at the
 * end), and the memory of strings. */
struct config_rest {
    int argc;
    char **argv;
    const char *file; /* that --config names; NULL: none */
    void *memory;
};

enum config_outcome {
    CONFIG_OK = 0,
    CONFIG_HELP = 1,  /* --help or --version was printed on standard output: exit 0 */
    CONFIG_USAGE = 2, /* one sentence was printed on standard error: exit 2 */
};

/* Reads defaults, then the file named by `--config FILE` if given, then the command line, into
 * `out`. `--` ends the options. Where `positional` is NULL a bool may be given as `--key no` too;
 * where it is not, only as `--key=no`. A key given twice: an error in the file, the last wins on
 * the command line. `out` and `rest` are untouched unless it returns CONFIG_OK. Reads a file, so
 * only main functions call it. */
enum config_outcome config_parse(const struct config_spec *spec, int argc, char **argv, void *out,
                                 struct config_rest *rest);
void config_free(struct config_rest *rest);

/* config_parse_why: the same without --help and --version, and with the sentence of a mistake in `why`. Errors: ROWAN_ECONFIG. */
int config_parse_why(const struct config_spec *spec, int argc, char **argv, void *out,
                     struct config_rest *rest, char *why, size_t why_bytes);

/* config_set: one key of `out` that is live, by the rules and with the sentences of a start; `out` is untouched on
 * failure. A string in it is `text` itself. config_why_kept: why another key stays, as the end of a sentence.
 * config_print: its value as a person writes it. Errors: ROWAN_ECONFIG. */
int config_set(const struct config_spec *spec, const char *name, const char *text, void *out,
               char *why, size_t why_bytes);
bool config_is_live(const struct config_key *key);
void config_print(const struct config_key *key, const void *settings, char *out, size_t out_bytes);
const char *config_why_kept(const struct config_key *key);

/* config_read_cm: reads the CM's address from the file `cm` of a rowan-local directory. Errors:
 * ROWAN_ENOTFOUND (no such file), ROWAN_EFORMAT (empty, or over `out_bytes`), else what the system said. */
int config_read_cm(const char *directory, char *out, size_t out_bytes);

/* "12", "64K", "2G" to a number. Errors: ROWAN_EINVALID. */
int config_parse_u64(const char *text, uint64_t *out);

#endif

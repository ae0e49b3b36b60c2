/* config.c - settings from defaults, an INI file and the command line, in that order of precedence,
 * and the sentence for the first mistake found in them.
 *
 * G1 `out` and `rest` are written only when everything is right.
 * G2 A word that begins with `--` is never an option's value unless written as `--key=value`, so
 *    `--help` and `--config` can be found before the rest is understood.
 */
#include "common/base/config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/assert.h"
#include "common/base/config_value.h"
#include "common/base/error.h"
#include "common/base/version.h"

/* A line holds a key and a list of eight managers or seven ZooKeeper servers, the longest that there are. */
enum { WHY_BYTES = 512, FILE_BYTES_MAX = 1 << 20, LINE_BYTES = 4096 };

/* One piece of memory that config_free releases. */
struct kept_text {
    struct kept_text *next;
    char text[];
};

struct setting {
    bool set;     /* by the default or a person */
    bool in_file; /* the file names it */
    union config_value value;
};

struct parse {
    const struct config_spec *spec;
    struct setting *settings; /* one for each key */
    struct kept_text *kept;
    char *why;
    size_t why_bytes;
    bool failed;
    bool looks_for_file;     /* a first walk over the arguments, which sets nothing else than */
    const char *config_path; /* what --config names; NULL: nothing */

    /* The INI file. */
    const char *path; /* stands before the sentence of a mistake; NULL: it is not in the text */
    FILE *file;
    int line;
    bool saw_own_section;
    bool saw_other_section;
};

/* Keeps the sentence of the first mistake. Returns false. */
__attribute__((format(printf, 2, 3))) static bool fail(struct parse *parse, const char *format, ...)
{
    size_t begun = 0;
    va_list arguments;

    if (parse->failed)
        return false;
    parse->failed = true;
    if (parse->why_bytes == 0)
        return false;
    if (parse->path != NULL)
        begun = (size_t)snprintf(parse->why, parse->why_bytes, "%s: ", parse->path);
    if (begun < parse->why_bytes) {
        va_start(arguments, format);
        vsnprintf(parse->why + begun, parse->why_bytes - begun, format, arguments);
        va_end(arguments);
    }
    for (char *at = parse->why; *at != '\0'; at++) {
        if (iscntrl((unsigned char)*at))
            *at = '?'; /* bytes of a file must not control a terminal */
    }
    return false;
}

static void free_kept(struct kept_text *kept)
{
    while (kept != NULL) {
        struct kept_text *next = kept->next;

        free(kept);
        kept = next;
    }
}

static const char *keep_text(struct parse *parse, const char *text)
{
    size_t bytes = strlen(text) + 1;
    struct kept_text *kept = malloc(sizeof(*kept) + bytes);

    if (kept == NULL)
        return NULL;
    memcpy(kept->text, text, bytes);
    kept->next = parse->kept;
    parse->kept = kept;
    return kept->text;
}

/* Sets `key` to `text`; `place` stands before its name in the sentence of a mistake. */
static bool set_value(struct parse *parse, const struct config_key *key, const char *place,
                      const char *text)
{
    struct setting *setting = &parse->settings[key - parse->spec->keys];
    union config_value value;
    char allowed[WHY_BYTES / 2];

    if (!config_value_parse(key, text, &value)) {
        config_value_print_allowed(key, allowed, sizeof(allowed));
        return fail(parse, "%s%s must be %s, not \"%.60s\"", place, key->name, allowed, text);
    }
    if (config_type_of(key) == CONFIG_STRING) {
        value.text = keep_text(parse, text);
        if (value.text == NULL)
            return fail(parse, "%s", error_sentence(ROWAN_ENOMEM));
    }
    setting->set = true;
    setting->value = value;
    return true;
}

static const struct config_key *find_key(const struct config_spec *spec, const char *name,
                                         size_t name_bytes)
{
    for (unsigned i = 0; i < spec->key_count; i++) {
        const char *candidate = spec->keys[i].name;

        if (strncmp(candidate, name, name_bytes) == 0 && candidate[name_bytes] == '\0')
            return &spec->keys[i];
    }
    return NULL;
}

/* With the defaults in place. False: out of memory. */
static bool parse_init(struct parse *parse, const struct config_spec *spec, char *why,
                       size_t why_bytes)
{
    *parse = (struct parse){.spec = spec, .why = why, .why_bytes = why_bytes};
    parse->settings = calloc((size_t)spec->key_count + 1, sizeof(*parse->settings));
    if (parse->settings == NULL)
        return fail(parse, "%s", error_sentence(ROWAN_ENOMEM));
    for (unsigned i = 0; i < spec->key_count; i++) {
        const struct config_key *key = &spec->keys[i];
        struct setting *setting = &parse->settings[i];

        if (key->fallback == NULL)
            continue;
        setting->set = config_value_parse(key, key->fallback, &setting->value);
        ASSERT(setting->set); /* a default must be allowed */
    }
    return true;
}

static void parse_fini(struct parse *parse)
{
    free(parse->settings);
    free_kept(parse->kept);
}

static bool check_required(struct parse *parse)
{
    const struct config_spec *spec = parse->spec;

    for (unsigned i = 0; i < spec->key_count; i++) {
        const char *name = spec->keys[i].name;

        if (!parse->settings[i].set)
            return fail(parse,
                        "%s is required and missing: give --%s VALUE, or %s = VALUE in section "
                        "[%s] of the file that --config names",
                        name, name, name, spec->program);
    }
    return true;
}

/* Gives the settings and the memory of their strings to the caller (G1). */
static void give_out(struct parse *parse, void *out, struct config_rest *rest)
{
    for (unsigned i = 0; i < parse->spec->key_count; i++)
        config_value_put(&parse->spec->keys[i], out, parse->settings[i].value);
    *rest = (struct config_rest){.memory = parse->kept, .file = parse->config_path};
    parse->kept = NULL;
}

static void note_section(struct parse *parse, const char *line)
{
    size_t name_bytes = strlen(parse->spec->program);

    if (line[0] == '[' && strncmp(line + 1, parse->spec->program, name_bytes) == 0 &&
        line[1 + name_bytes] == ']')
        parse->saw_own_section = true;
}

/* Like fgets, for inih. But indentation is dropped, because inih would read an indented key as the
 * continuation of the one before; and a line that does not fit ends the reading. */
static char *read_ini_line(char *line, int line_bytes, void *stream)
{
    struct parse *parse = stream;
    int bytes = 0, byte = parse->failed ? EOF : getc(parse->file);

    if (byte == EOF)
        return NULL;
    parse->line++;
    while (byte == ' ' || byte == '\t')
        byte = getc(parse->file);
    for (; byte != EOF; byte = byte == '\n' ? EOF : getc(parse->file)) {
        if (bytes == line_bytes - 1) {
            fail(parse, "line %d is longer than %d bytes", parse->line, line_bytes - 1);
            return NULL;
        }
        if (byte == '\0') {
            fail(parse, "line %d has a zero byte: this is no text file", parse->line);
            return NULL;
        }
        line[bytes++] = (char)byte;
    }
    line[bytes] = '\0';
    note_section(parse, line);
    return line;
}

/* inih's handler: 1 is right, 0 a mistake. */
static int apply_ini_value(void *user, const char *section, const char *name, const char *value)
{
    struct parse *parse = user;
    const struct config_key *key;
    struct setting *setting;
    char place[32];

    if (section[0] == '\0')
        return fail(parse, "line %d: %.60s stands before any [section]; write [%s] above it",
                    parse->line, name, parse->spec->program);
    if (strcmp(section, parse->spec->program) != 0) {
        parse->saw_other_section = true;
        return 1;
    }
    key = find_key(parse->spec, name, strlen(name));
    if (key == NULL)
        return fail(parse, "line %d: unknown key %.60s; %s --help lists the keys", parse->line,
                    name, parse->spec->program);
    setting = &parse->settings[key - parse->spec->keys];
    if (setting->in_file)
        return fail(parse, "line %d: %s is given twice", parse->line, key->name);
    for (const char *at = strchr(value, ';'); at; at = strchr(at + 1, ';')) {
        if (at > value && isspace((unsigned char)at[-1]))
            return fail(parse,
                        "line %d: there is a \" ;\" in the value of %s; a comment stands on a line "
                        "of its own",
                        parse->line, key->name);
    }
    setting->in_file = true;
    snprintf(place, sizeof(place), "line %d: ", parse->line);
    return set_value(parse, key, place, value);
}

static bool apply_ini(struct parse *parse)
{
    ini_max_line = ini_initial_alloc = LINE_BYTES;
    ini_use_stack = ini_allow_inline_comments = false;
    const int wrong_line = ini_parse_stream(read_ini_line, parse, apply_ini_value, parse);
    if (wrong_line < 0)
        return fail(parse, "%s", error_sentence(ROWAN_ENOMEM));
    if (wrong_line > 0 && (!parse->failed || wrong_line < parse->line)) {
        parse->failed = false; /* inih tells of a line that is no INI only now; it came first */
        return fail(parse, "line %d is neither [section], nor key = value, nor a comment",
                    wrong_line);
    }
    if (parse->saw_other_section && !parse->saw_own_section)
        return fail(parse, "the file has sections, but none is [%s]", parse->spec->program);
    return !parse->failed;
}

static bool apply_file(struct parse *parse, const char *path)
{
    struct stat status;
    bool right;

    parse->file = fopen(path, "re");
    if (parse->file == NULL)
        return fail(parse, "cannot open the configuration file %s: %s", path, strerror(errno));
    if (fstat(fileno(parse->file), &status) == 0 && status.st_size > FILE_BYTES_MAX) {
        right = fail(parse, "the configuration file %s is larger than 1 MiB", path);
    } else {
        parse->path = path;
        right = apply_ini(parse);
        parse->path = NULL;
    }
    if (ferror(parse->file))
        right = fail(parse, "cannot read the configuration file %s: %s", path, strerror(errno));
    fclose(parse->file);
    return right;
}

/* The value of the option at argv[*index], which it moves on where the value is the next word.
 * NULL: there is none. */
static const char *option_value(const struct parse *parse, const struct config_key *key, int argc,
                                char **argv, int *index)
{
    const char *equals = strchr(argv[*index], '=');
    const char *next = *index + 1 < argc ? argv[*index + 1] : NULL;
    bool ignored;

    if (equals != NULL)
        return equals + 1;
    /* Where words of their own may follow, `--json 1` would be read in two ways: there a bare
     * --key is always yes. */
    if (key != NULL && config_type_of(key) == CONFIG_BOOL &&
        (next == NULL || parse->spec->positional != NULL ||
         !config_value_parse_bool(next, &ignored)))
        return "yes";
    if (next == NULL || strncmp(next, "--", 2) == 0)
        return NULL; /* G2 */
    ++*index;
    return next;
}

static bool apply_option(struct parse *parse, int argc, char **argv, int *index)
{
    const char *option = argv[*index];
    const char *name = option + 2;
    size_t name_bytes = strcspn(option, "=") - 2;
    bool is_long = strncmp(option, "--", 2) == 0;
    bool is_config = is_long && name_bytes == 6 && memcmp(name, "config", 6) == 0;
    const struct config_key *key =
        is_long && !is_config ? find_key(parse->spec, name, name_bytes) : NULL;
    const char *value;

    if (key == NULL && !is_config)
        return fail(parse, "unknown option %.60s; %s --help lists the options%s", option,
                    parse->spec->program,
                    parse->spec->positional != NULL ? ", and -- ends them" : "");
    value = option_value(parse, key, argc, argv, index);
    if (value == NULL)
        return fail(parse, "%s needs a value", option);
    if (!is_config)
        return parse->looks_for_file || set_value(parse, key, "--", value);
    if (parse->looks_for_file && parse->config_path != NULL)
        return fail(parse, "--config is given twice");
    parse->config_path = value;
    return true;
}

/* Applies options and gathers the other words in `words`. */
static bool apply_arguments(struct parse *parse, int argc, char **argv, char **words,
                            int *word_count)
{
    bool options_ended = false;

    *word_count = 0;
    for (int i = 1; i < argc; i++) {
        if (!options_ended && strcmp(argv[i], "--") == 0)
            options_ended = true;
        else if (!options_ended && argv[i][0] == '-' && argv[i][1] != '\0') {
            if (!apply_option(parse, argc, argv, &i))
                return false;
        } else if (parse->spec->positional == NULL)
            return fail(parse, "\"%.60s\" is not expected here; options begin with --", argv[i]);
        else
            words[(*word_count)++] = argv[i];
    }
    return true;
}

/* Is one of the two among the words in front of `--`? */
static bool has_word(int argc, char **argv, const char *word, const char *other)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], word) == 0 || strcmp(argv[i], other) == 0)
            return true;
    }
    return false;
}

static void print_key(const struct config_key *key)
{
    const bool made = (key->type & CONFIG_MADE) != 0;
    char allowed[WHY_BYTES];

    if (config_type_of(key) == CONFIG_BOOL && strcmp(key->fallback, "no") == 0) {
        printf("  --%s\n      %s\n      off unless given\n", key->name, key->help);
        return;
    }
    config_value_print_allowed(key, allowed, sizeof(allowed));
    printf("  --%s VALUE\n      %s\n      %s; %s", key->name, key->help, allowed,
           config_is_live(key) ? "changes while it runs; "
           : made              ? "fixed when the cluster is made; "
                               : "");
    if (key->fallback == NULL)
        printf("required\n");
    else if (key->fallback[0] == '\0')
        printf("optional\n");
    else
        printf("default: %s\n", key->fallback);
}

static void print_help(const struct config_spec *spec)
{
    printf("Usage: %s [--key value]...%s%s\n%s\n\n", spec->program,
           spec->positional != NULL ? " " : "", spec->positional != NULL ? spec->positional : "",
           spec->summary);
    for (unsigned i = 0; i < spec->key_count; i++)
        print_key(&spec->keys[i]);
    printf("  --config FILE\n      read settings from section [%s] of this INI file; the command "
           "line wins\n"
           "  --version\n      print the release, and the formats that this program reads\n"
           "  --help\n      print this\n\n"
           "Numbers may end in K, M, G or T (powers of 1024). A switch is written KEY = yes in a "
           "file.\n",
           spec->program);
}

int config_parse_why(const struct config_spec *spec, int argc, char **argv, void *out,
                     struct config_rest *rest, char *why, size_t why_bytes)
{
    struct parse parse;
    char **words = calloc((size_t)argc + 1, sizeof(*words));
    int word_count;
    bool right = parse_init(&parse, spec, why, why_bytes);

    if (words == NULL)
        right = fail(&parse, "%s", error_sentence(ROWAN_ENOMEM));
    parse.looks_for_file = true;
    right = right && apply_arguments(&parse, argc, argv, words, &word_count) &&
            (parse.config_path == NULL || apply_file(&parse, parse.config_path));
    parse.looks_for_file = false;
    right =
        right && apply_arguments(&parse, argc, argv, words, &word_count) && check_required(&parse);
    if (right) {
        give_out(&parse, out, rest);
        rest->argc = word_count;
        rest->argv = words;
    } else {
        free(words);
    }
    parse_fini(&parse);
    return right ? 0 : ROWAN_ECONFIG;
}

enum config_outcome config_parse(const struct config_spec *spec, int argc, char **argv, void *out,
                                 struct config_rest *rest)
{
    char why[WHY_BYTES + 256];

    if (has_word(argc, argv, "--help", "-h")) {
        print_help(spec);
        return CONFIG_HELP;
    }
    if (has_word(argc, argv, "--version", "-V")) {
        version_print(spec->program, spec->release);
        return CONFIG_HELP;
    }
    if (config_parse_why(spec, argc, argv, out, rest, why, sizeof(why)) != 0) {
        fprintf(stderr, "%s: %s\n", spec->program, why);
        return CONFIG_USAGE;
    }
    return CONFIG_OK;
}

int config_set(const struct config_spec *spec, const char *name, const char *text, void *out,
               char *why, size_t why_bytes)
{
    const struct config_key *key = find_key(spec, name, strlen(name));
    struct parse parse;
    bool right = parse_init(&parse, spec, why, why_bytes);

    if (right && key == NULL)
        right = fail(&parse, "unknown key %.60s; %s --help lists the keys", name, spec->program);
    if (right && !config_is_live(key))
        right = fail(&parse, "%s %s", name, config_why_kept(key));
    right = right && set_value(&parse, key, "", text);
    if (right && config_type_of(key) == CONFIG_STRING)
        config_value_put(key, out, (union config_value){.text = text});
    else if (right)
        config_value_put(key, out, parse.settings[key - spec->keys].value);
    parse_fini(&parse);
    return right ? 0 : ROWAN_ECONFIG;
}

void config_free(struct config_rest *rest)
{
    free_kept(rest->memory);
    free(rest->argv);
    *rest = (struct config_rest){0};
}

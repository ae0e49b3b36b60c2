/* runs.h - files with the JSON of runs, for `compare` and `merge`: nothing in them is trusted. */
#ifndef YCSB_RUNS_H
#define YCSB_RUNS_H

#include <jansson.h>
#include <stdbool.h>

#include "client/rowan.h"
#include "common/base/histogram.h"

/* What the JSON has beside kinds and times. When runs are merged a key is the same in all, is added up
 * (an object: each number in it), or is that of the first. */
struct runs_key {
    const char *key; /* NULL: the end of the list */
    bool is_setting;
    enum { RUNS_SAME, RUNS_ADDED, RUNS_FIRST } merged;
};
extern const struct runs_key runs_keys[];

/* runs_load: the object in the file, which has what every run has. NULL: a sentence was printed. The
 * caller ends its reference. */
json_t *runs_load(const char *path);

/* The histogram of a kind. False: there is none, or it is damaged. */
bool runs_histogram(const json_t *kind, struct histogram *out);

/* `rowan-ycsb merge FILE FILE...`, `compare A B` and `check FILE`, in files of their own. They return the program's exit code.
 * check_run reads each record that the file of acknowledged writes names. It is right if its stored version is higher than
 * the highest acknowledged one, or is that one with the value that was written. */
int merge_run(int count, char **paths, bool json);
int compare_run(const char *const paths[2], bool json);
int check_run(const struct rowan_options *session, const char *path, bool json);

#endif

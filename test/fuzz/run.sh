#!/bin/sh
# run.sh FUZZER CORPUS MAX_BYTES: replays the committed seeds, then a fixed number of runs from them.
# What the fuzzer finds interesting goes to a directory that is thrown away, what crashes it to the
# working directory. A crash exits with 1: libFuzzer's own 77 would be a skipped test.
set -eu
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "$1" -runs=20000 -seed=1 -error_exitcode=1 -max_len="$3" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    "$found" "$2"

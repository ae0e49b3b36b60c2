#!/bin/sh
# sdk_test.sh BUILD SOURCE: the SDK as a program's author meets it: installs it into a staging
# directory, checks what the library exports, and builds the programs of client/README.md, copied
# out of it, with the command that stands there. Prints TAP.
set -eu
build=$1
source=$2
cc=${CC:-cc}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
n=0
bad=0

check() { # NAME COMMAND...
    label=$1
    shift
    n=$((n + 1))
    if "$@" >"$stage/out" 2>&1; then
        echo "ok $n - $label"
    else
        echo "not ok $n - $label"
        sed 's/^/# /' "$stage/out"
        bad=1
    fi
}

# The n-th ```c block of the README.
block() {
    awk -v want="$1" '/^```c$/ { k++; inside = k == want; next }
                      /^```$/ { inside = 0 } inside' "$source/client/README.md"
}

installed() {
    DESTDIR=$stage/root meson install --no-rebuild -C "$build"
    library=$(find "$stage/root" -name 'librowan.so.0')
    test -n "$library"
}

exports_only_the_header() {
    nm -D --defined-only --format=posix "$library" | awk '$2 != "A" { sub(/@.*/, "", $1); print $1 }' |
        sort >"$stage/exported"
    grep '^ROWAN_API' "$source/client/rowan.h" | grep -o 'rowan_[a-z_]*(' | tr -d '(' | sort \
        >"$stage/declared"
    test -s "$stage/declared"
    diff "$stage/declared" "$stage/exported"
}

has_its_soname() {
    readelf -d "$library" | grep -q 'SONAME.*\[librowan.so.0\]'
}

documents_the_example() { # NUMBER NAME
    block "$1" >"$stage/$2.c"
    diff "$source/client/examples/$2.c" "$stage/$2.c"
}

# The command in the README, with `cc` and the staging directory put in.
compiles() { # NAME
    command=$(grep "^cc $1\.c " "$source/client/README.md")
    pc=$(dirname "$(find "$stage/root" -name rowan.pc)")
    export PKG_CONFIG_PATH="$pc" PKG_CONFIG_SYSROOT_DIR="$stage/root"
    (cd "$stage" && sh -ec "cc() { command $cc -Wall -Wextra -Werror \"\$@\"; }; $command")
}

# Without a cluster they must say so, and not crash.
runs() { # NAME
    ! LD_LIBRARY_PATH=$(dirname "$library") "$stage/$1" "$stage" 2>"$stage/said"
    cat "$stage/said"
    grep -q 'open: not found' "$stage/said"
}

check "the SDK installs into a staging directory" installed
check "the library exports what rowan.h declares and nothing else" exports_only_the_header
check "its soname is librowan.so.0" has_its_soname
i=0
for name in sync async; do
    i=$((i + 1))
    check "README.md shows $name.c as it is in the examples" documents_the_example $i $name
    check "$name.c compiles by the README's command" compiles $name
    check "$name says that there is no cluster" runs $name
done
echo "1..$n"
exit $bad

#!/usr/bin/python3
"""Only the seams, tools and files with a main function call the operating system (design, section 2).

Read from the objects of a build, not from the source: every symbol that an object needs and that no object of
ours defines must be one of the plain functions listed here. Any other function is reported.

Usage: os_calls.py SOURCE_ROOT BUILD_ROOT
"""

import fnmatch
import functools
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import objects
import tap

# Who may call the operating system: prefixes of paths.
SEAMS = (
    "common/pm/",
    "common/fabric/",
    "common/coord/",
    "common/reactor/",
    "common/metrics/endpoint",
    "common/base/clock",
    "common/base/log",
    "common/base/memory_calls",
    "common/base/config",
    "common/base/random",
    "common/base/version",
    "common/cluster/login_file",
    "tools/",
)

# Functions that only compute, or only touch memory. A stream is memory: nothing here opens another one.
PLAIN = """
malloc calloc realloc reallocarray free aligned_alloc posix_memalign
mem* str* stp* __str* __mem* rawmemchr bcmp explicit_bzero
snprintf vsnprintf open_memstream fprintf fputc fputs fwrite ferror fclose sscanf vsscanf __isoc99_sscanf __isoc99_vsscanf __isoc23_sscanf
__isoc23_strto* asprintf vasprintf
isalnum isalpha isdigit isprint isspace isxdigit tolower toupper __ctype_*
qsort qsort_r bsearch abs labs llabs
pow exp log log2 log10 sqrt floor ceil round lround llround lrint fmod *l_finite
abort __assert_fail __stack_chk_fail __errno_location
_GLOBAL_OFFSET_TABLE_ __stop_* __start_* __tls_get_addr __dso_handle __popcountdi2 __cpu_model __sanitizer_*
__asan_* __ubsan_* __tsan_* __sancov_*
htonl htons ntohl ntohs
setjmp longjmp _setjmp __sigsetjmp
XXH* crc32_* protobuf_c_* json_* ini_*
EVP_sha256 SHA256 HMAC PKCS5_PBKDF2_HMAC CRYPTO_memcmp OPENSSL_cleanse
""".split()

# These match a pattern above, but call the operating system.
NOT_PLAIN = "memfd_create json_load_file json_load_callback json_loadf* json_dump_file json_dumpf* \
ini_parse ini_parse_file json_dumpfd".split()


def unfortified(name):
    """memcpy for __memcpy_chk: what a hardening compiler calls instead."""
    if name.startswith("__") and name.endswith("_chk"):
        return name[2:-4]
    return name


@functools.cache
def is_plain(name):
    name = unfortified(name)
    return any(fnmatch.fnmatchcase(name, p) for p in PLAIN) and not any(
        fnmatch.fnmatchcase(name, p) for p in NOT_PLAIN
    )


def violations(pairs):
    """Of `pairs` of (source, object), one line each."""
    ours, needs = set(), []
    for (source, _), (defined, needed) in zip(pairs, objects.symbols([path for _, path in pairs])):
        ours |= defined
        if "main" not in defined and not source.startswith(SEAMS):
            needs.append((source, needed - defined))
    found = set()
    for source, needed in needs:
        for name in needed - ours:
            if not is_plain(name) and not name.startswith("rowan__"):
                found.add(f"{source}: calls {name}()")
    return sorted(found)


@tap.case
def only_the_seams_call_the_operating_system():
    pairs = [pair for pair in objects.shipped(ROOT, BUILD)]
    tap.check(pairs, "no objects in", BUILD)
    # Objects of the code that protoc-c makes, which is in the build directory.
    generated = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(os.path.join(BUILD, "proto"))
        for name in names
        if name.endswith(".o")
    ]
    bad = violations(pairs + [("proto/generated", path) for path in generated])
    tap.check(not bad, "\n" + "\n".join(bad))


@tap.case
def planted_calls_of_the_operating_system_are_found():
    calls = {
        "open": "#include <fcntl.h>\nint f(void){return open(\"x\", 0);}",
        "clock_gettime": "#include <time.h>\nint f(struct timespec *t)"
        "{return clock_gettime(0, t);}",
        "rand": "#include <stdlib.h>\nint f(void){return rand();}",
        "pthread_create": "#include <pthread.h>\nint f(pthread_t *t, void *(*g)(void *))"
        "{return pthread_create(t, 0, g, 0);}",
        "usleep": "#include <unistd.h>\nint f(void){return usleep(1);}",
        "getenv": "#include <stdlib.h>\nchar *f(void){return getenv(\"x\");}",
        "printf": "#include <stdio.h>\nint f(int i){return printf(\"%d\", i);}",
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, text in calls.items():
            source = os.path.join(folder, "bad.c")
            with open(source, "w", encoding="utf-8") as file:
                file.write("#define _GNU_SOURCE\n" + text + "\n")
            made = os.path.join(folder, "bad.o")
            subprocess.run(["cc", "-O2", "-c", source, "-o", made], check=True)
            tap.equal(violations([("server/bad.c", made)]), [f"server/bad.c: calls {name}()"])
            tap.equal(violations([("common/pm/good.c", made)]), [])


if __name__ == "__main__":
    ROOT, BUILD = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    sys.exit(tap.main())

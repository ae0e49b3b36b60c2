#!/usr/bin/env python3
"""Every place and number of common/fabric/mlx5/mlx5_layout.h is what the Linux kernel's own header says.

The headers, of include/linux/mlx5, come from the distribution's package: they are downloaded once into CACHE
(nothing of them is copied into the tree) and read there. Without the package the cases are skipped.

Usage: mlx5_layout_test.py TABLE CACHE
TABLE prints our table (mlx5_table.c).
"""

import os
import re
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import packages
import tap

META_PACKAGE = "linux-headers-amd64"
LAYOUTS = ("mlx5_ifc.h", "mlx5_ifc_fpga.h")
HEADERS = LAYOUTS + ("device.h", "qp.h")

# The device has these, and user space's own headers (DPDK's mlx5_prm.h, UCX's ib_mlx5_ifc.h) name them; older
# kernels, with no use for them, leave them reserved. There, at least all of the field must be.
MAY_BE_RESERVED = {
    ("cmd_hca_cap", "ib_striding_wq"),
    ("wq", "dbr_umem_id"),
    ("wq", "wq_umem_id"),
    ("qpc", "dbr_umem_id"),
    ("create_qp_in", "wq_umem_offset"),
    ("create_qp_in", "wq_umem_id"),
}


def keep_headers(package, cache):
    """Of the package's 76 MB only the headers that are read."""
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE
    ) as unpacking:
        with tarfile.open(fileobj=unpacking.stdout, mode="r|") as files:
            for file in files:
                folder, name = os.path.split(file.name)
                if folder.endswith("/include/linux/mlx5") and name in HEADERS:
                    with open(os.path.join(cache, name + ".new"), "wb") as kept:
                        kept.write(files.extractfile(file).read())
                    os.rename(os.path.join(cache, name + ".new"), os.path.join(cache, name))


def fetch(cache):
    """Downloads the headers unless they are in the cache."""
    paths = [os.path.join(cache, name) for name in HEADERS]
    if all(os.path.isfile(path) for path in paths):
        return
    kernel = packages.depends_on(META_PACKAGE, r"linux-headers-[0-9]\S*")
    common = packages.depends_on(kernel, r"linux-headers-\S*common\S*")
    package = packages.download(common, cache)
    keep_headers(package, cache)
    os.remove(package)
    for path in paths:
        if not os.path.isfile(path):
            raise packages.Unavailable(f"{common} has no {os.path.basename(path)}")


class Layouts:
    """Reads `struct mlx5_ifc_NAME`: `u8 field[bits]`, other structs and unions, arrays."""

    def __init__(self, text):
        self.text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        self.known = {}

    def bits(self, kind, name):
        return self.fields(kind, name)[1]

    def fields(self, kind, name):
        """{field: (first bit, bits)}, and the bits of all."""
        if (kind, name) in self.known:
            return self.known[kind, name]
        body = re.search(
            rf"^{kind} mlx5_ifc_{name} \{{\n(.*?)^\}};", self.text, re.S | re.M
        )
        tap.check(body, f"no {kind} mlx5_ifc_{name} in the header")
        fields, at, most = {}, 0, 0
        for line in re.findall(r"([^;]+);", body.group(1)):
            field, bits = self.field(" ".join(line.split()))
            fields[field] = (at, bits)
            most = max(most, at + bits)
            if kind == "struct":
                at += bits
        self.known[kind, name] = fields, most
        return fields, most

    def field(self, line):
        plain = re.fullmatch(r"u8 (\w+)((?:\[\w*\])+)", line)
        nested = re.fullmatch(r"(struct|union) mlx5_ifc_(\w+) (\w+)((?:\[\w*\])*)", line)
        tap.check(plain or nested, "cannot read a line of the header:", line)
        if plain:
            name, sizes, bits = plain.group(1), plain.group(2), 1
        else:
            name, sizes = nested.group(3), nested.group(4)
            bits = self.bits(nested.group(1), nested.group(2))
        for size in re.findall(r"\[(\w*)\]", sizes):
            bits *= int(size, 0) if size else 0
        return name, bits


def table(kind):
    text = subprocess.run([TABLE], stdout=subprocess.PIPE, text=True, check=True).stdout
    lines = [line.split()[1:] for line in text.splitlines() if line.split()[0] == kind]
    tap.check(lines, "the table is empty")
    return lines


def headers(*names):
    try:
        fetch(CACHE)
    except packages.Unavailable as reason:
        tap.skip(f"NOT COMPARED with the kernel's headers: {reason}")
    texts = []
    for name in names:
        with open(os.path.join(CACHE, name), encoding="utf-8") as file:
            texts.append(file.read())
    return "\n".join(texts)


def reserved_around(fields, first, bits):
    return any(
        name.startswith("reserved") and at <= first and first + bits <= at + size
        for name, (at, size) in fields.items()
    )


def what_is_wrong(layouts, lines):
    for structure, field, first, bits in lines:
        first, bits = int(first), int(bits)
        fields, _ = layouts.fields("struct", structure + "_bits")
        if field in fields:
            if fields[field] != (first, bits):
                yield f"{structure}.{field} is at {fields[field]}, not {(first, bits)}"
        elif (structure, field) not in MAY_BE_RESERVED:
            yield f"{structure}.{field} is not in the header"
        elif not reserved_around(fields, first, bits):
            yield f"{structure}.{field} at {(first, bits)} is in the place of something else"


@tap.case
def every_field_has_the_place_and_width_of_the_kernels_header():
    layouts = Layouts(headers(*LAYOUTS))
    wrong = list(what_is_wrong(layouts, table("field")))
    tap.check(not wrong, "; ".join(wrong))


@tap.case
def a_wrong_place_or_width_of_any_field_would_be_found():
    layouts, lines = Layouts(headers(*LAYOUTS)), table("field")
    for number, (structure, field, first, bits) in enumerate(lines):
        # A field in a reserved stretch may move inside of it and still be believed: its place is held by
        # the golden bytes alone until the header names it.
        if field not in layouts.fields("struct", structure + "_bits")[0]:
            continue
        for moved, wide in ((int(first) + 1, int(bits)), (int(first), int(bits) + 1)):
            changed = list(lines)
            changed[number] = (structure, field, moved, wide)
            tap.check(list(what_is_wrong(layouts, changed)), f"{structure}.{field} was believed")


@tap.case
def every_command_and_answer_has_the_headers_length():
    layouts = Layouts(headers(*LAYOUTS))
    for structure, bytes_of in table("bytes"):
        bits = layouts.bits("struct", structure + "_bits")
        tap.equal(int(bytes_of) * 8, bits, structure)


@tap.case
def every_number_is_the_headers():
    text = headers(*HEADERS)
    for name, number in table("number"):
        found = re.search(rf"^\s*{name}\s*=\s*(\w+)(?: << (\w+))?", text, re.M)
        tap.check(found, name, "is not in the headers")
        tap.equal(int(number), int(found.group(1), 0) << int(found.group(2) or "0", 0), name)


@tap.case
def no_field_crosses_a_double_word_or_leaves_its_command():
    for structure, field, first, bits in table("field"):
        first, bits = int(first), int(bits)
        tap.check(
            first // 32 == (first + bits - 1) // 32 if bits < 32 else first % 32 == 0 == bits % 32,
            structure, field,
        )


if __name__ == "__main__":
    TABLE, CACHE = sys.argv[1], sys.argv[2]
    sys.exit(tap.main())

#!/usr/bin/env python3
"""Prints rowan(3) out of rowan.h: its comments are the text, its declarations stand as they are. header.py HEADER RELEASE"""

import re
import sys

TITLE = """.TH ROWAN 3 "" "{release}" "Rowan-KV"
.SH NAME
rowan \\- the C SDK of Rowan-KV, a sharded, replicated key-value store for small objects
.SH SYNOPSIS
.nf
#include <rowan.h>

cc \\-o program program.c $(pkg\\-config \\-\\-cflags \\-\\-libs rowan)
.fi
.SH DESCRIPTION"""
FRAME = re.compile(r"^(#(?!define)|extern \"C\"|}$|ROWAN_API$)|^#define (ROWAN_H|ROWAN_API)\b")


def escaped(text):
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"))


def paragraphs(comment):
    """The text of a comment without its frame, a blank line between paragraphs."""
    lines = [re.sub(r"^ ?\*/? ?", "", line).rstrip() for line in comment[2:-2].strip().split("\n")]
    return [" ".join(filter(None, part)) for part in split(lines)]


def split(lines):
    part = []
    for line in [*lines, ""]:
        if line:
            part.append(line.strip())
        elif part:
            yield part
            part = []


def main():
    path, release = sys.argv[1:]
    with open(path, encoding="ascii") as file:
        text = file.read()
    print(TITLE.format(release=release))
    # Comments that begin a line are text; those in a declaration belong to it.
    for number, piece in enumerate(re.split(r"^(/\*.*?\*/)\n", text, flags=re.M | re.S)):
        if piece.startswith("/*"):
            for at, paragraph in enumerate(paragraphs(piece)):
                if number == 1 and at == 0:
                    continue  # NAME says it
                heading = re.fullmatch(r"--- (.*) ---", paragraph)
                print(f".SS {escaped(heading[1])}" if heading else f".PP\n{escaped(paragraph)}")
            continue
        lines = [line for line in piece.split("\n") if not FRAME.match(line)]
        code = "\n".join(lines).strip().replace("ROWAN_API ", "")
        if code:
            print(".PP\n.nf")
            print("\n".join(escaped(line) for line in code.split("\n")))
            print(".fi")
    print(".SH SEE ALSO\nrowan(1), rowan\\-server(8)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

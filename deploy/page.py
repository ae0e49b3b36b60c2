#!/usr/bin/env python3
"""Prints a man page out of --help: page.py NAME.SECTION RELEASE ABOUT PROGRAM [COMMAND ...]. With commands each one's own
--help stands there too. rowan.conf.5 is of the files: its PROGRAM and COMMANDs are programs, each with its keys."""

import os
import re
import sys

sys.dont_write_bytecode = True

import helps  # noqa: E402

FILES = {
    "/etc/rowan/NAME.conf": "settings of rowan-server@NAME or rowan-cm@NAME; see rowan.conf(5)",
    "/usr/share/rowan/server.conf, cm.conf": "such files, with every key and what it means",
    "/var/lib/rowan": "data of servers that have no device, and the configuration of a manager without ZooKeeper",
}
CONF = """.SH DESCRIPTION
A file of settings is an INI file: a section in square brackets for each program, and in it lines
.I key = value\\fR.
A line that begins with # is a comment. Every key is also an option of the command line, \\-\\-key value, which wins. The
unit rowan\\-server@NAME reads the section [rowan\\-server] of /etc/rowan/NAME.conf, rowan\\-cm@NAME the section [rowan\\-cm].
A file with every key and its default is in /usr/share/rowan. A key that the program does not have, or a value that the
key cannot have, ends it with a sentence and exit status 2."""
BLANK = "\\&"
PAGES = ("rowan(1)", "rowan-local(1)", "rowan-ycsb(1)", "rowan-doctor(1)", "rowan-dlwa(1)", "rowan(3)", "rowan.conf(5)", "rowan-cm(8)",
         "rowan-server(8)")  # fmt: skip


def escaped(text):
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"), flags=re.M)


def tagged(tag, text):
    print(f".TP\n{tag}\n{escaped(text) or BLANK}")


def options(found, lead="\\-\\-"):
    for key, value, what, values in found:
        tag = f"\\fB{lead}{escaped(key)}\\fR" + (f" \\fI{value}\\fR" if value and lead else "")
        tagged(tag, f"{what}; {values}." if values else what + ".")


def description(lines):
    """Sentences, and between them commands with what each does: "  get KEY   text", from the second column on."""
    print(".PP")
    for number, line in enumerate(lines):
        if line.startswith("  "):
            command, _, text = line.strip().partition("  ")
            tagged(f"\\fB{escaped(command)}\\fR", text.strip())
        elif line:
            print(".PP\n" * lines[number - 1].startswith("  ") + escaped(line))


def body(program, commands):
    text = helps.of(program)
    if not text.startswith("Usage: "):  # argparse's, with a help for each command
        print(".SH DESCRIPTION")
        for words in ((), *((command,) for command in commands)):
            print(f".SS {' '.join(words)}" if words else "", f".nf\n{escaped(helps.of(program, *words))}.fi", sep="\n")
        return
    usage, about, found, end = helps.parts(text)
    name, _, forms = usage.partition(" [--key value]...")
    print(".SH SYNOPSIS")
    for form in forms.strip().split(" | "):
        print(f".B {escaped(name)}\n[\\-\\-key value]... {escaped(form)}\n.br")
    print(".SH DESCRIPTION")
    description(about)
    print(".SH OPTIONS")
    options(found)
    for command in commands:
        print(f".SH OPTIONS OF {escaped(name)} {escaped(command)} FILE")
        options(helps.parts(helps.of(program, command, "FILE"))[2])
    description(end)


def main():
    page, release, about, program, *more = sys.argv[1:]
    name, _, section = page.rpartition(".")
    print(f'.TH {name.upper()} {section} "" "Rowan-KV {release}" "Rowan-KV"\n.nh\n.ad l')
    print(f".SH NAME\n{escaped(name)} \\- {escaped(about)}")
    if name == "rowan.conf":
        print(CONF)
        for one in (program, *more):
            print(f".SH SECTION [{escaped(os.path.basename(one))}]")
            options([(key, "", *rest) for key, *rest in helps.keys(helps.of(one))], lead="")
    else:
        body(program, more)
        print(".SH EXIT STATUS\n0: done; 1: failed, as one sentence on standard error says; 2: usage.")
    print(".SH FILES")
    for path, what in FILES.items():
        tagged(f"\\fI{path}\\fR", what)
    print(".SH SEE ALSO\n" + escaped(", ".join(one for one in PAGES if one != f"{name}({section})")))


if __name__ == "__main__":
    main()

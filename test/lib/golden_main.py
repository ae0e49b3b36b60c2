"""The command line of a script that prints golden vectors as a C header:

  NAME.py                prints it
  NAME.py --check FILE   fails if FILE is not what would be printed
"""

import os
import sys


def main(text, usage):
    """`text`: the header; `usage`: what is said of words that mean nothing. Returns the exit code."""
    words = sys.argv[1:]
    if not words:
        sys.stdout.write(text)
        return 0
    if len(words) != 2 or words[0] != "--check":
        sys.stderr.write(usage)
        return 2
    with open(words[1], encoding="ascii") as file:
        if file.read() == text:
            return 0
    sys.stderr.write(f"{words[1]} is not what {os.path.basename(sys.argv[0])} prints\n")
    return 1

"""Runs a Python program again and again in one process, each time with other words, as plimsoll tells it.

A bench client imports for ten seconds what it then uses for one. Here it imports once: the program's own script is run
as `__main__` again and finds its modules loaded. Everything else is as if it was started anew: its words, its
environment, an empty standard input.

    kept_bench.py PROGRAM MARK

Orders come on standard input, a line each: {"argv": [...], "env": {...}, "result": PATH}. After each, both streams say
`MARK <exit code>` on a line of their own; before that, of a run that ended with 0, standard output says what it wrote to
PATH, in pieces: `MARK text <a string of JSON>`. Before the first order comes `MARK ready`. It ends with its input. A program
that is no Python script is refused with exit code 3 before anything else.
"""

import gc
import json
import os
import re
import runpy
import shutil
import sys
import traceback

REFUSED = 3

# A result beyond this is fetched as any other file, characters.
LARGEST = 1 << 20
# Of a line; each may become twelve characters of JSON, and a line holds 64 KiB.
PIECE = 4000


def script_of(program):
    """Where the program's script lies, and the Python that its first line names."""
    path = shutil.which(program)
    if path is None:
        raise ValueError("no `%s` in PATH" % program)
    with open(path, "rb") as script:
        head = script.read(4096).decode("utf-8", "replace")
    # Where the path is too long for the kernel, installers write a shell's line before.
    found = re.match(r"#!\s*(?:/usr/bin/env\s+)?(\S*python[\d.]*)\s*\n", head)
    found = found or re.match(r"#!/bin/sh\n'''exec' (\S*python[\d.]*) ", head)
    python = shutil.which(found.group(1)) if found else None
    if python is None:
        raise ValueError("`%s` is not a script of Python's" % path)
    return path, python


def run(script, argv):
    """The program's exit code."""
    sys.argv = list(argv)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def say(mark, word):
    for stream in (sys.stdout, sys.stderr):
        print("\n%s %s" % (mark, word), file=stream, flush=True)


def hand_over(mark, path):
    """Says what the run has written: to fetch a file from a container takes longer than a run's whole beginning."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LARGEST + 1)
    except (OSError, ValueError):
        return
    if len(text) > LARGEST:
        return
    for at in range(0, len(text), PIECE):
        print("%s text %s" % (mark, json.dumps(text[at : at + PIECE])), flush=True)


def tidy_up(freeze=gc.freeze):
    """Takes away what a run has left. What is imported is frozen once: going through it takes a second."""
    if gc.freeze is freeze:
        gc.unfreeze()
        gc.collect()
        freeze()
        # A run that freezes what it has loaded itself would keep that for ever.
        gc.freeze = lambda: None
    else:
        gc.collect()


def main():
    program, mark = sys.argv[1:3]
    try:
        script, python = script_of(program)
    except (OSError, ValueError) as why:
        print(why, file=sys.stderr)
        return REFUSED
    if os.path.abspath(sys.executable) != os.path.abspath(python):
        os.execv(python, [python, __file__, program, mark])
    orders = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    surroundings = dict(os.environ)
    folder = os.getcwd()
    say(mark, "ready")
    for line in orders:
        order = json.loads(line)
        os.environ.clear()
        os.environ.update(surroundings)
        os.environ.update(order["env"])
        os.chdir(folder)
        code = run(script, order["argv"])
        if code == 0 and order.get("result"):
            # What the run has printed without an end of line ends here.
            print(flush=True)
            hand_over(mark, order["result"])
        say(mark, code)
        tidy_up()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the farewell of all that was imported, which takes a second.
    os._exit(code)

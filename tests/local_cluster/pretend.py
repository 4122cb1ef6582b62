"""The command line with small programs of our own in place of Kubernetes: `python -m local_cluster.pretend FOLDER`.

Everything else is what users run. FOLDER gets one Go module a program; they share no package, so that each has
something to compile, and build in about a second.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from dispatch_local.__main__ import nothing_was_begun

if __name__ == "__main__":
    # As `python -m dispatch_local` does it, before the long imports.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, nothing_was_begun)

from dispatch_local import paths, programs

PROGRAMS = ("one", "two", "three", "four", "five", "six")
# Linked into the program and read by it: makes it as large as it says.
SOURCE = """package main

import "fmt"

var words = [...]string{%s}

func main() { fmt.Println("%s", len(words)) }
"""
WORDS = 400


def groups(folder: Path) -> tuple[programs.Group, ...]:
    """Write the modules, as far as they are not there, and return their groups."""
    for name in PROGRAMS:
        module = folder / name
        if not module.exists():
            module.mkdir(parents=True)
            (module / "go.mod").write_text(f"module example.org/{name}\n\ngo 1.21\n")
            words = ", ".join(f'"{name} {number}"' for number in range(WORDS))
            (module / "main.go").write_text(SOURCE % (words, name))
    return tuple(programs.Group(name, "v1", ((name, "."),), directory=name) for name in PROGRAMS)


def main() -> int:
    """Run the command line on the pretend programs."""
    folder = Path(sys.argv.pop(1))
    paths.MODULES = folder
    programs.GROUPS = groups(folder)
    # Imported now, since it offers the names of the groups.
    from dispatch_local import cli

    return cli.main()


if __name__ == "__main__":
    code = main()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(code)

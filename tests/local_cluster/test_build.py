"""The build, on small programs: once each, checked by hash, and got over whatever spoils it.

Aspects: two at once; a damaged program, a half-built entry, what a killed build left; a full disk; Ctrl-C at
random moments; a build that failed goes on where it was; a cache that is whole needs no Go. Each says what was
wrong, leaves nothing, and the same command works again.
"""

from __future__ import annotations

import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dispatch_local import host
from dispatch_local.waiting import until
from interrupting import SEED, interrupted
from local_cluster import pretend
from local_cluster.surroundings import TIMEOUT_SECONDS, Result

# How many random moments: more in `make soak-local`.
MOMENTS = int(os.environ.get("DISPATCH_MOMENTS", "2"))


class Bench:
    """A place to build in, with a cache of its own. Go's cache is the user's: what it holds makes builds short."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        go_cache = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout
        self.env = {"XDG_CACHE_HOME": str(folder / "cache"), "GOCACHE": go_cache.strip()}
        pretend.groups(folder / "modules")

    @property
    def cache(self) -> Path:
        return self.folder / "cache" / "dispatch-gates" / "programs"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "local_cluster.pretend", str(self.folder / "modules"), "build", *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            env=os.environ | self.env,
            cwd=Path(__file__).parents[1],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )

    def build(self, *arguments: str) -> Result:
        with self.start(*arguments) as process:
            text, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        assert "Traceback" not in text, text
        return Result(process.returncode, text)

    def entry(self, name: str) -> Path:
        (found,) = self.cache.glob(f"{name}-*")
        return found

    def works(self) -> bool:
        return all(
            subprocess.run([self.entry(name) / "bin" / name], capture_output=True, text=True, check=True).stdout
            == f"{name} {pretend.WORDS}\n"
            for name in pretend.PROGRAMS
        )

    def left(self) -> list[str]:
        """What lies in the cache beside whole entries and their locks."""
        whole = {path.name for path in self.cache.glob("*/build.json") for path in [path.parent]}
        return sorted(path.name for path in self.cache.iterdir() if path.name not in whole | {".locks"})

    def busy(self) -> list[str]:
        """Commands that still work on this place, compilers included."""
        found = []
        for file in Path("/proc").glob("[0-9]*/environ"):
            try:
                if str(self.folder).encode() in file.read_bytes():
                    found.append((file.parent / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return [command for command in found if command]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return a place in which everything is built; a test that spoils it has it built again."""
    bench = Bench(tmp_path_factory.mktemp("built"))
    result = bench.build()
    assert result.code == 0, result.text
    for name in pretend.PROGRAMS:
        assert len(re.findall(rf"^built {name} v1: \d+ s, \d+ MB$", result.text, re.MULTILINE)) == 1, result.text
    return bench


@pytest.fixture
def bench(tmp_path: Path, built: Bench) -> Bench:  # noqa: ARG001  # what Go compiled for it is used
    """Return a place with an empty cache; Go has compiled it before, so that it takes a second."""
    return Bench(tmp_path)


def test_what_is_built_works_and_is_not_built_again(built: Bench) -> None:
    assert built.works()
    again = built.build()
    assert (again.code, "building" in again.text) == (0, False)
    table = built.build("--table")
    assert re.search(r"^\| six \| v1 \| \d+ MB \| \d+ s \|$", table.text, re.MULTILINE), table.text


def spoil_program(entry: Path) -> str:
    """Change one byte in the middle, and nothing else: not the size, not the time."""
    program = entry / "bin" / entry.name.partition("-")[0]
    content, times = bytearray(program.read_bytes()), program.stat()
    content[len(content) // 2] ^= 1
    program.write_bytes(content)
    os.utime(program, ns=(times.st_atime_ns, times.st_mtime_ns))
    return f"{program} is not what was built"


def lose_program(entry: Path) -> str:
    program = entry / "bin" / entry.name.partition("-")[0]
    program.unlink()
    return f"{program} is not what was built"


def add_file(entry: Path) -> str:
    (entry / "bin" / "more").write_text("x")
    return f"{entry}/bin/more is not what was built"


def lose_record(entry: Path) -> str:
    (entry / "build.json").unlink()
    return f"{entry} is only half there"


def empty_record(entry: Path) -> str:
    # What a power cut makes of a file that was just written.
    (entry / "build.json").write_text("")
    return f"{entry} is only half there"


@pytest.mark.parametrize("spoil", [spoil_program, lose_program, add_file, lose_record, empty_record])
def test_a_damaged_entry_is_noticed_named_and_built_again(built: Bench, spoil: Callable[[Path], str]) -> None:
    said = spoil(built.entry("three"))
    result = built.build()
    assert result.code == 0, result.text
    assert f"{said}; building it again" in result.text
    assert [name for name in pretend.PROGRAMS if f"built {name} " in result.text] == ["three"]
    assert built.works()
    assert built.left() == []


def test_two_builds_at_once_build_each_program_once(bench: Bench) -> None:
    with bench.start() as first, bench.start() as second:
        texts = [process.communicate(timeout=TIMEOUT_SECONDS)[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], texts
    for name in pretend.PROGRAMS:
        assert sum(f"built {name} v1" in text for text in texts) == 1, texts
    assert bench.works()


def test_a_build_that_was_killed_leaves_nothing_that_the_next_one_does_not_clear(bench: Bench) -> None:
    with bench.start() as process:
        until("a half-built entry", lambda: any(bench.cache.glob(".*-*/entry/bin")), timeout=600)
        os.killpg(process.pid, signal.SIGKILL)
    # Its compilers are in groups of their own, and end with it all the same.
    until("the end of the compilers", lambda: not bench.busy(), timeout=600)
    result = bench.build()
    assert result.code == 0, result.text
    assert bench.works()
    assert bench.left() == []


def test_a_program_that_does_not_compile_stops_the_build_with_its_words_and_the_rest_is_kept(bench: Bench) -> None:
    source = bench.folder / "modules" / "six" / "main.go"
    good = source.read_text()
    source.write_text("package main\n\nfunc main() { nonsense() }\n")
    failed = bench.build()
    assert failed.code == 1
    assert "building six v1 failed (exit 1)" in failed.text
    assert "undefined: nonsense" in failed.text
    assert bench.left() == []
    source.write_text(good)
    result = bench.build()
    assert result.code == 0, result.text
    assert bench.works()
    for name in pretend.PROGRAMS:
        assert not (f"built {name} " in failed.text and f"built {name} " in result.text)


@pytest.fixture
def small_disk(bench: Bench) -> Iterator[Path]:
    """Have the cache on a file system with room for one program, more or less."""
    folder = bench.folder / "cache"
    folder.mkdir()
    host.run("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        host.run("umount", str(folder))


def test_a_full_disk_is_named_and_with_room_the_same_works(bench: Bench, small_disk: Path) -> None:
    failed = bench.build()
    assert failed.code == 1, failed.text
    for said in ("no space left on device", str(small_disk), "MB free", "XDG_CACHE_HOME", "run the same again"):
        assert said in failed.text
    assert bench.left() == []
    host.run("mount", "-o", "remount,size=100m", str(small_disk))
    result = bench.build()
    assert result.code == 0, result.text
    assert bench.works()


def test_ctrl_c_at_random_moments_leaves_nothing(bench: Bench) -> None:
    print(f"DISPATCH_SEED={SEED}")
    moments = random.Random(SEED)
    started = time.monotonic()
    assert bench.build("--force").code == 0
    whole = time.monotonic() - started
    for _ in range(MOMENTS):
        moment = moments.uniform(0, whole)
        with bench.start("--force") as process:
            said = interrupted(process, moment, f"seed {SEED}, {moment:.2f} s of {whole:.2f} s")
        assert bench.left() == [], said
        assert not bench.busy(), said
    assert bench.build("--force").code == 0
    assert bench.works()


def test_on_a_terminal_each_program_has_a_line_that_ends_as_built(bench: Bench) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        bench.command(),
        env=os.environ | bench.env | {"TERM": "xterm", "COLUMNS": "100"},
        cwd=Path(__file__).parents[1],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # the terminal is closed once nobody writes to it
            break
    os.close(ours)
    assert process.wait(TIMEOUT_SECONDS) == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    last = plain[plain.rindex("one v1") :]
    for name in pretend.PROGRAMS:
        assert re.search(rf"{name} v1 +\d:\d\d:\d\d built in \d+ s, \d+ MB", last), plain


def test_the_record_names_every_file(built: Bench) -> None:
    entry = built.entry("one")
    record = json.loads((entry / "build.json").read_text())
    assert list(record["files"]) == ["bin/one"]
    assert record["bytes"] == (entry / "bin" / "one").stat().st_size

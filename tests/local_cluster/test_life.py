"""A cluster comes up once, goes down without a trace, and gets over every way of being ended.

Tested here: up, status, logs, kubeconfig, pause, resume, restart, down; two at once; leftovers of a killed cluster,
of a power cut and of a killed or interrupted `up`; ports and networks that are taken; a part that does not start.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from dispatch_local import build, control, host, programs
from dispatch_local.cluster import Cluster
from dispatch_local.layout import INDEXES, Addresses, Layout
from dispatch_local.waiting import until
from local_cluster.surroundings import Surroundings, assert_nothing_left, namespaces, processes, run, started

# Two test runs at once must not meet.
NAME = f"test-life-{os.getpid()}"
BYSTANDER = f"dispatch{200 + os.getpid() % 50}"
QUICK = ("up", "--without-node")


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Have all programs in the cache, so that the tests are about clusters."""
    build.ensure(programs.CLUSTER_GROUPS, print)


@pytest.fixture(autouse=True)
def bystanders() -> Iterator[None]:
    """Have a link and a process that only look like a cluster's; whatever the test does must not touch them."""
    host.run("ip", "link", "add", BYSTANDER, "type", "veth", "peer", "name", f"{BYSTANDER}c")
    try:
        with subprocess.Popen(["etcd", "600"], executable="/bin/sleep") as process:
            yield
            assert process.poll() is None
            process.kill()
        assert BYSTANDER in host.run("ip", "link", "show")
    finally:
        host.run("ip", "link", "delete", BYSTANDER)


@pytest.fixture
def layout() -> Iterator[Layout]:
    """Return the layout of a cluster that is not there before and will not be there after."""
    yield Layout(NAME)
    Cluster(NAME).down()


def test_two_ups_at_once_make_one_cluster_and_down_leaves_nothing(layout: Layout) -> None:
    before = Surroundings.see(layout)
    texts: list[tuple[int, str]] = []

    def up() -> None:
        result = run(NAME, "up", "--image", "pause")
        texts.append((result.code, result.text))

    threads = [threading.Thread(target=up) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [code for code, _ in texts] == [0, 0], texts
    assert sorted("already up" in text for _, text in texts) == [False, True], texts

    status = run(NAME, "status")
    assert status.code == 0
    for part in ("etcd", "kube-apiserver", "kueue", "jobset", "trainer", "kwok", "containerd", "kubelet"):
        assert part in status.text
    assert run(NAME, "logs", "kueue").text.strip()
    unknown = run(NAME, "logs", "nonsense")
    assert unknown.code == 2
    assert "kueue" in unknown.text
    assert run(NAME, "kubeconfig").text.strip() == str(layout.kubeconfig)
    assert layout.kubeconfig.stat().st_mode & 0o077 == 0
    assert layout.audit_log.stat().st_size

    assert "held" in run(NAME, "pause", "kwok").text
    assert "held (SIGSTOP)" in run(NAME, "status").text
    assert "goes on" in run(NAME, "resume", "kwok").text
    assert "held (SIGSTOP)" not in run(NAME, "status").text
    assert "was started again" in run(NAME, "restart", "kwok").text
    nonsense = run(NAME, "pause", "nonsense")
    assert (nonsense.code, "it has etcd, kube-apiserver" in nonsense.text) == (1, True), nonsense.text

    ran, spaces = processes(layout), namespaces(layout)
    assert len(ran) > 10
    assert len(spaces) >= 4
    down = run(NAME, "down")
    assert down.code == 0, down.text
    assert_nothing_left(layout, before, ran, spaces)

    again = run(NAME, "down")
    assert (again.code, "not up" in again.text) == (0, True)
    for command in (("status",), ("kubeconfig",), ("logs", "kueue")):
        gone = run(NAME, *command)
        assert gone.code == 3, gone.text
        assert "not up" in gone.text


def test_after_kill_9_of_its_init_a_cluster_is_not_up_and_can_come_up_again(layout: Layout) -> None:
    before = Surroundings.see(layout)
    assert run(NAME, *QUICK).code == 0
    pid = control.peer(layout.control)
    ran = processes(layout)
    os.kill(pid, signal.SIGKILL)
    until("the end of the init process", lambda: not Cluster(NAME).is_up(), timeout=600)
    assert run(NAME, "status").code == 3
    second = run(NAME, *QUICK)
    assert second.code == 0, second.text
    assert "left behind" in second.text
    assert not processes(layout) & ran
    assert run(NAME, "down").code == 0
    assert_nothing_left(layout, before, ran)


def test_after_a_power_cut_down_and_up_know_what_is_left_for_what_it_is(layout: Layout) -> None:
    """Everything killed at once, the link gone, files cut off: what a boot finds. And `up` in the middle of it."""
    before = Surroundings.see(layout)
    assert run(NAME, *QUICK).code == 0
    ran, spaces = processes(layout), namespaces(layout)
    for pid, _ in ran:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until("the end of all processes", lambda: not host.cgroup_processes(layout), timeout=600)
    host.remove_links(layout)
    until("the removal of the cgroups", lambda: host.remove_cgroups(layout), timeout=600)
    for file in (layout.state, layout.kubeconfig):
        file.write_bytes(b"\0" * 20)
    for words in (("status",), ("kubeconfig",), ("pause", "kueue")):
        assert run(NAME, *words).code == 3
    down = run(NAME, "down")
    assert (down.code, "nothing of it is left" in down.text) == (0, True), down.text
    assert_nothing_left(layout, before, ran, spaces)


def test_ports_and_networks_that_others_have_are_no_hindrance(layout: Layout) -> None:
    """The cluster has a network of its own; of the host's it takes a part that nobody has."""
    taken = Addresses(next(index for index in INDEXES if index not in _used()))
    host.run("ip", "address", "add", f"{taken.host}/30", "dev", BYSTANDER)
    host.run("ip", "link", "set", BYSTANDER, "up")
    with ExitStack() as held:
        for port in (443, 2379, 2380, 6443, 8081, 9443, 10250, 10257):
            listener = held.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # What somebody else has already is as good.
            with suppress(OSError):
                listener.bind(("0.0.0.0", port))
                listener.listen()
        before = Surroundings.see(layout)
        assert run(NAME, *QUICK).code == 0
        assert Addresses(json.loads(layout.state.read_text())["index"]) != taken
        ran, spaces = processes(layout), namespaces(layout)
        assert run(NAME, "down").code == 0
        assert_nothing_left(layout, before, ran, spaces)


def _used() -> set[int]:
    """The numbers of links and networks that this machine has now."""
    text = host.run("ip", "link", "show") + host.run("ip", "route", "show")
    return {int(number) for pair in re.findall(r"dispatch(\d+)|10\.213\.(\d+)\.", text) for number in pair if number}


def _exists(path: Path) -> Callable[[], bool]:
    return path.exists


@pytest.mark.parametrize("reached", ["state.json", "control.sock"])
def test_ctrl_c_in_the_middle_of_up_leaves_nothing(layout: Layout, reached: str) -> None:
    before = Surroundings.see(layout)
    with started(NAME, *QUICK) as process:
        until(reached, _exists(layout.home / reached), timeout=600)
        # As the terminal does it: to the whole process group.
        os.killpg(process.pid, signal.SIGINT)
        text, _ = process.communicate(timeout=600)
    assert process.returncode == 130, text
    assert "interrupted" in text
    assert "Traceback" not in text
    assert_nothing_left(layout, before)


def test_after_an_up_that_was_killed_the_next_one_works(layout: Layout) -> None:
    before = Surroundings.see(layout)
    with started(NAME, *QUICK) as process:
        until("the first parts", _exists(layout.logs / "kube-apiserver.log"), timeout=600)
        process.kill()
    assert not Cluster(NAME).is_up()
    second = run(NAME, *QUICK)
    assert second.code == 0, second.text
    assert "left behind" in second.text
    assert run(NAME, "down").code == 0
    assert_nothing_left(layout, before)


def test_a_part_that_cannot_start_is_named_with_its_last_words(layout: Layout, tmp_path: Path) -> None:
    before = Surroundings.see(layout)
    cache = tmp_path / "dispatch-gates" / "programs"
    cache.mkdir(parents=True)
    for group in programs.CLUSTER_GROUPS:
        entry = programs.group(group).path
        if group == "jobset":
            shutil.copytree(entry, cache / entry.name)
            broken = cache / entry.name / "bin" / "jobset"
            broken.write_text("#!/bin/sh\necho no certificate today >&2\nexit 3\n")
            # A program that does not run where it was built well, not a damaged one: that would be built again.
            record = cache / entry.name / build.RECORD
            record.write_text(json.dumps({"files": build.hashes(cache / entry.name)}))
        else:
            (cache / entry.name).symlink_to(entry)
    failed = run(NAME, *QUICK, env={"XDG_CACHE_HOME": str(tmp_path)})
    assert failed.code == 1
    assert "jobset ended with exit code 3" in failed.text
    assert "no certificate today" in failed.text
    assert "Traceback" not in failed.text
    assert_nothing_left(layout, before)

"""A cluster without root: KWOK nodes alone, and it says so; as whole and as gone afterwards as any other.

Aspects: nobody, with no right of root, brings it up, uses it, pauses and restarts its parts; a TrainJob goes through
Kueue, Trainer and JobSet to a pretended pod; two side by side; a taken port is gone around; kill -9 of everything;
another's process survives; `down` leaves nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from dispatch_local import build, host, paths, programs
from dispatch_local.api import Api
from dispatch_local.layout import LOOPBACK_PREFIX
from dispatch_local.waiting import until
from local_cluster.surroundings import TIMEOUT_SECONDS, Result

NOBODY = 65534
PROJECT = Path(__file__).parents[2]
NAMES = ("less", "more")
# What nobody may not read where it lies is shown to nobody elsewhere, in a mount namespace of each command.
PLACES = {
    "python": Path(sys.base_prefix),
    "packages": Path(sysconfig.get_path("purelib")),
    "project": PROJECT,
    "cache": paths.cache().parent,
}


class Person:
    """Somebody without rights, with a home of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        os.chown(home, NOBODY, NOBODY)

    def run(self, name: str, *arguments: str) -> Result:
        binds = [f"mkdir /srv/{place} && mount --bind '{path}' /srv/{place}" for place, path in PLACES.items()]
        binds += [f"mkdir /srv/home && mount --bind '{self.home}' /srv/home"]
        folders = ("provider", "controller", "infra", "infra/local")
        env = {
            "HOME": "/srv/home",
            "PATH": "/usr/bin:/bin",
            "XDG_CACHE_HOME": "/srv/cache",
            "PYTHONHOME": "/srv/python",
            "LD_LIBRARY_PATH": "/srv/python/lib",
            "PYTHONPATH": ":".join(["/srv/packages", *(f"/srv/project/{folder}" for folder in folders)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        python = f"/srv/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        rights = f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --no-new-privs --inh-caps=-all"
        words = [*rights.split(), python, "-m", "dispatch_local", "--name", name, *arguments]
        script = " && ".join(["mount -t tmpfs tmpfs /srv", *binds, 'cd / && exec "$@"'])
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", *words],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        text = done.stdout + done.stderr
        assert "Traceback" not in text, text
        return Result(done.returncode, text)

    def folder(self, name: str) -> Path:
        return self.home / ".local/state/dispatch-gates/clusters" / name

    def processes(self) -> dict[int, str]:
        """What this person's clusters run: by the path of the state folder in the environment."""
        found = {}
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                if b"/srv/home/.local/state" in (directory / "environ").read_bytes():
                    found[int(directory.name)] = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return {pid: command for pid, command in found.items() if command}

    def api(self, name: str) -> Api:
        content = yaml.safe_load((self.folder(name) / "kubeconfig").read_text())
        server = content["clusters"][0]["cluster"]["server"]
        return Api(server, self.folder(name) / "pki" / "ca.crt", content["users"][0]["user"]["token"])


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build.ensure(programs.CLUSTER_GROUPS, print)
    host.ensure_packages({"setpriv": "util-linux"}, print)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    home = tmp_path / "home"
    home.mkdir()
    person = Person(home)
    yield person
    for name in NAMES:
        person.run(name, "down")
    assert person.processes() == {}
    shutil.rmtree(home)


def test_without_root_there_is_a_cluster_without_a_real_node(person: Person) -> None:
    with socket.socket() as taken, bystander() as stranger:
        # Somebody else has a port of the first addresses.
        taken.bind((f"{LOOPBACK_PREFIX}.0.2", 2379))
        taken.listen()
        _lives(person)
        assert stranger.poll() is None


@contextmanager
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Have a process that only looks like a part of a cluster."""
    with subprocess.Popen(["etcd", "600"], executable="/bin/sleep") as process:
        try:
            yield process
        finally:
            process.kill()


def _lives(person: Person) -> None:
    up = person.run("less", "up")
    assert up.code == 0, up.text
    for said in ("without root there is no real node", "cgroups", "With sudo", "KWOK", "cluster less is up"):
        assert said in up.text
    status = person.run("less", "status")
    assert "kueue" in status.text
    assert "kubelet" not in status.text
    with person.api("less") as api:
        state = json.loads((person.folder("less") / "state.json").read_text())
        assert (state["rootless"], state["index"] != 0) == (True, True)
        assert api.get("/version") is not None
        assert [node["metadata"]["name"] for node in (api.get("/api/v1/nodes") or {})["items"]] == [
            "kwok-0",
            "kwok-1",
        ]
        _pod_runs(api)
    for words in (("pause", "kueue"), ("resume", "kueue"), ("restart", "kueue")):
        done = person.run("less", *words)
        assert (done.code, "kueue of cluster less" in done.text) == (0, True), done.text
    image = person.run("less", "demo")
    assert image.code == 4, image.text
    assert "needs root" in image.text

    # Side by side with another, under addresses of its own.
    assert person.run("more", "up").code == 0
    with person.api("more") as api:
        assert api.get("/version") is not None
    assert person.run("more", "down").code == 0
    assert person.run("less", "status").code == 0

    # Everything killed at once; the folder stays, as after a power cut.
    for pid in person.processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    until("the end of all", lambda: not person.processes(), timeout=600)
    assert person.run("less", "status").code == 3
    down = person.run("less", "down")
    assert (down.code, "nothing of it is left" in down.text) == (0, True), down.text
    assert not person.folder("less").exists()
    assert person.processes() == {}


def _pod_runs(api: Api) -> None:
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    until("the ServiceAccount", lambda: api.get(account) is not None, timeout=600)
    tolerations = [{"operator": "Exists"}]
    spec = {"containers": [{"name": "main", "image": "none"}], "tolerations": tolerations}
    status, body = api.request("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "pod"}, "spec": spec})
    assert status == 201, body

    def phase() -> bool:
        return ((api.get("/api/v1/namespaces/default/pods/pod") or {}).get("status") or {}).get("phase") == "Running"

    until("the pretended pod", phase, timeout=600)


def test_a_port_that_is_taken_everywhere_is_named(person: Person) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("0.0.0.0", 10257))
        taken.listen()
        up = person.run("less", "up")
    assert up.code == 1, up.text
    for said in ("port 10257 is taken", "ss -ltnp", "End it, or use root"):
        assert said in up.text
    assert not person.folder("less").exists()
    assert person.processes() == {}

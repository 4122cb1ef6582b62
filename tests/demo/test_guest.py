"""The demo on a cluster that the user has: the session's cluster plays that part, by a kubeconfig of the user's own.

Aspects: it says what is missing and asks before it creates anything; refused or interrupted it leaves the cluster as
it was; it plays to the end in both modes, with the user's `pulumi` where that will do and its own where not, and
leaves no object and no file on the node behind.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from dispatch_gates.contract.names import Resource
from dispatch_local import build, control, engine, images, programs, waiting
from dispatch_local.cluster import Cluster
from dispatch_local.demo import guest, kubeconfig, project
from dispatch_local.demo.guest import Guest
from dispatch_local.demo.watching import Server
from dispatch_local.errors import LocalError, MissingError
from dispatch_local.layout import Layout

CONTEXT = "mine"
SECONDS = 900
# What comes and goes by itself.
PASSING = {"events", "leases"}


class User:
    """Somebody with a kubeconfig of several contexts, one of which is the cluster."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        content = yaml.safe_load(cluster.kubeconfig.read_text())
        authority = Path(content["clusters"][0]["cluster"]["certificate-authority"]).read_bytes()
        (folder / "ca.crt").write_bytes(authority)
        content["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
        content["contexts"] = [
            {"name": "other", "context": {"cluster": "gone", "user": "gone"}},
            {"name": CONTEXT, "context": content["contexts"][0]["context"]},
        ]
        content["current-context"] = "other"
        self.kubeconfig = folder / "config"
        self.kubeconfig.write_text(yaml.safe_dump(content))
        self.server = Server(cluster.kubeconfig)
        self.env = os.environ | {"KUBECONFIG": str(self.kubeconfig)}

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "dispatch_local", "demo", "--context", CONTEXT, *arguments],
            env=self.env | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )

    def demo(self, *arguments: str, **more: str) -> tuple[int, str]:
        with self.start(*arguments, **more) as process:
            text, _ = process.communicate(timeout=SECONDS)
        assert "Traceback" not in text, text
        return process.returncode, text

    def objects(self) -> set[str]:
        """The paths of all objects in the cluster, of every kind that can be listed."""
        groups = self.server.get("/apis") or {}
        bases = ["/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups["groups"])]
        found = set()
        for base in bases:
            for kind in (self.server.get(base) or {}).get("resources", []):
                name = kind["name"]
                if "list" not in kind["verbs"] or "/" in name or name in PASSING:
                    continue
                for item in (self.server.get(f"{base}/{name}") or {}).get("items") or []:
                    meta = item["metadata"]
                    found.add(f"{base}/{meta.get('namespace', '')}/{name}/{meta['name']}")
        return found

    def nodes(self) -> list[dict[str, Any]]:
        """The cluster's nodes."""
        found: list[dict[str, Any]] = (self.server.get("/api/v1/nodes") or {})["items"]
        return found

    def on_the_node(self) -> bool:
        """Whether the demo's folder is on the node, which has a file system of its own."""
        return Path(f"/proc/{control.peer(Layout(self.cluster.name).control)}/root/run/dispatch-demo").exists()


@pytest.fixture(scope="module")
def user(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    build.ensure(programs.PULUMI_GROUPS, print)
    user = User(cluster, tmp_path_factory.mktemp("user"))

    def listed() -> bool | str:
        """A node lists a new image within half a minute."""
        (node,) = [each for each in user.nodes() if each["metadata"]["name"] == "real-0"]
        images_there = {name for image in node["status"].get("images", []) for name in image["names"]}
        return {images.reference("training"), images.reference("controller")} <= images_there or str(images_there)

    waiting.until("the node lists the demo's images", listed, timeout=400)
    return user


@pytest.fixture
def unchanged(user: User) -> Iterator[None]:
    """Have the test leave everything as it was: in the cluster, on the node, and in the folder for temporary files."""
    before, folders = user.objects(), set(Path("/tmp").glob("dispatch-demo-*"))
    yield
    assert sorted(user.objects() - before) == []
    assert not user.on_the_node()
    assert set(Path("/tmp").glob("dispatch-demo-*")) <= folders


def check_story(text: str) -> None:
    for said in (
        "no pod so far",
        r"A=\d+: I was given this admission count",
        "resuming after epoch",
        "FENCED, nothing written",
        "Executions",
        "running",
        "nothing of it is left there",
    ):
        assert re.search(said, text), f"{said} is not in:\n{text}"


@pytest.mark.usefixtures("unchanged")
def test_in_kueue_mode_with_its_own_pulumi(user: User, tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    old = tmp_path / "bin"
    old.mkdir()
    (old / "pulumi").write_text("#!/bin/sh\necho v3.100.0\n")
    (old / "pulumi").chmod(0o755)
    path = f"{old}:{os.environ['PATH']}"
    code, text = user.demo("--yes", "--svg", str(picture), PATH=path)
    assert code == 0, text
    check_story(text)
    for said in (
        "yours is 3.100.0",
        "Kueue: workloads.kueue.x-k8s.io",
        "evicted, Preempted",
        "waiting for the old pods",
    ):
        assert said in text
    for planned in ("Deployment dispatch-admission in dispatch-system", "ClusterQueue dispatch-demo", "AdmissionCheck"):
        assert planned in text
    assert "waiting for the old pods" in picture.read_text()


@pytest.mark.usefixtures("unchanged")
def test_in_plain_mode_with_the_users_pulumi(user: User) -> None:
    path = f"{engine.programs_path()}:{os.environ['PATH']}"
    code, text = user.demo("--plain", "--yes", PATH=path)
    assert code == 0, text
    check_story(text)
    for said in (f"your own, {programs.PULUMI}", "held: the hold mark is set", "released: the hold mark is gone"):
        assert said in text
    assert "AdmissionCheck" not in text


@pytest.mark.usefixtures("unchanged")
def test_ctrl_c_in_the_middle_takes_everything_away_again(user: User) -> None:
    process = user.start("--plain", "--yes")
    assert process.stdout is not None
    seen = []
    with process.stdout:
        for line in process.stdout:
            seen.append(line)
            if "pod runs on node" in line:
                os.killpg(process.pid, signal.SIGINT)
                break
        seen.append(process.stdout.read())
    assert process.wait(SECONDS) == 130, "".join(seen)
    assert "nothing of it is left there" in seen[-1]
    assert "Traceback" not in seen[-1]


@pytest.mark.usefixtures("unchanged")
def test_nobody_to_ask_is_a_no(user: User) -> None:
    code, text = user.demo("--plain")
    assert code == 2, text
    assert "Namespace dispatch-demo" in text
    assert "--yes" in text


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("answer", ["n\n", "\n", "\x03"])
def test_a_no_changes_nothing(user: User, answer: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dispatch_local", "demo", "--context", CONTEXT, "--plain"]
    with subprocess.Popen(
        command, env=user.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as it:
        os.close(theirs)
        seen = ""
        while "[y/N]" not in seen:
            seen += os.read(ours, 65536).decode(errors="replace")
        if answer == "\x03":
            os.killpg(it.pid, signal.SIGINT)
        else:
            os.write(ours, answer.encode())
        assert it.wait(SECONDS) in {1, 130}
    os.close(ours)
    assert "Namespace dispatch-demo" in seen


@pytest.mark.usefixtures("unchanged")
def test_what_is_missing_is_named_all_at_once(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(user.kubeconfig))
    absent = Resource("kueue.example.org", "v1", "workloads", "Workload")
    monkeypatch.setitem(guest.KINDS, "Kueue", (absent, "somewhere"))
    monkeypatch.setitem(guest.KINDS, "JobSet", (absent, "elsewhere"))
    with Guest(CONTEXT, print) as seen:
        missing = seen.missing()
    assert missing == [
        "JobSet is missing (workloads.kueue.example.org v1 is not served): install it, elsewhere",
        "Kueue is missing (workloads.kueue.example.org v1 is not served): install it, somewhere",
    ]


@pytest.mark.usefixtures("unchanged")
def test_images_that_no_node_has_are_named(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(user.kubeconfig))
    monkeypatch.setattr("dispatch_local.images.reference", lambda name: f"nowhere.example/{name}:9")
    with Guest(CONTEXT, print) as seen:
        (missing,) = seen.missing()
    for said in ("real-0 lacks nowhere.example/controller:9, nowhere.example/training:9", "kind load", "IMAGE=..."):
        assert said in missing


@pytest.mark.usefixtures("unchanged")
def test_somebody_without_rights_is_told(user: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    layout = Layout(user.cluster.name)
    tokens = dict(line.split(",")[1::-1] for line in (layout.pki / "tokens.csv").read_text().splitlines())
    content = yaml.safe_load(user.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["certificate-authority"] = str(layout.pki / "ca.crt")
    content["users"][0]["user"]["token"] = tokens["system:kube-scheduler"]
    (tmp_path / "config").write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with Guest(CONTEXT, print, plain=True) as seen:
        missing = " ".join(seen.missing())
    assert "403" in missing
    assert "administrator" in missing


def test_the_context_is_taken_as_kubectl_takes_it(tmp_path: Path) -> None:
    first = tmp_path / "first"
    (tmp_path / "sub").mkdir()
    second = tmp_path / "sub" / "second"
    cluster = {"name": "c", "cluster": {"server": "https://one", "certificate-authority": "ca.crt"}}
    first.write_text(yaml.safe_dump({"clusters": [{"name": "c", "cluster": {"server": "https://wins"}}]}))
    user = {"name": "u", "user": {"client-key": "/abs/key", "exec": {"command": "./login"}}}
    contexts = [{"name": "mine", "context": {"cluster": "c", "user": "u"}}, {"name": "broken", "context": {}}]
    second.write_text(yaml.safe_dump({"clusters": [cluster], "users": [user], "contexts": contexts}))
    chosen = kubeconfig.select([first, second, tmp_path / "absent"], "mine")
    assert chosen["clusters"] == [{"name": "c", "cluster": {"server": "https://wins"}}]
    assert chosen["users"][0]["user"] == {"client-key": "/abs/key", "exec": {"command": f"{tmp_path}/sub/login"}}
    assert chosen["current-context"] == "mine"
    alone = kubeconfig.select([second], "mine")
    assert alone["clusters"][0]["cluster"]["certificate-authority"] == f"{tmp_path}/sub/ca.crt"
    with pytest.raises(MissingError, match="there are: mine, broken"):
        kubeconfig.select([second], "other")
    with pytest.raises(MissingError, match="names cluster None"):
        kubeconfig.select([second], "broken")
    with pytest.raises(MissingError, match="there is no kubeconfig"):
        kubeconfig.select([tmp_path / "absent"], "mine")
    (tmp_path / "list").write_text("- 1")
    with pytest.raises(LocalError, match="is not one"):
        kubeconfig.select([tmp_path / "list"], "mine")


def test_kubeconfigs_are_found_as_kubectl_finds_them() -> None:
    assert kubeconfig.sources({"KUBECONFIG": "/a::/b"}) == [Path("/a"), Path("/b")]
    assert kubeconfig.sources({}) == [Path.home() / ".kube" / "config"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [(None, False), ("2.999.0", False), ("4.0.0", False), ("3.100.0", False), ("3.272.0", True), ("3.9999.1", True)],
)
def test_which_pulumi_will_do(version: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "needed", lambda: "3.272.0")
    assert project.will_do(version) is expected


def test_what_pulumi_says_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert project.users_own() is None
    for said, expected in (("v3.1.2", "3.1.2"), ("v3.1.2-alpha.1", "3.1.2"), ("nonsense", None)):
        (tmp_path / "pulumi").write_text(f"#!/bin/sh\necho {said}\n")
        (tmp_path / "pulumi").chmod(0o755)
        assert project.users_own() == expected


def test_the_preview_is_json(tmp_path: Path) -> None:
    """What `Project.preview` relies on: only creations of Kubernetes objects count."""
    steps = [
        {"op": "create", "newState": {"type": "pulumi:pulumi:Stack", "inputs": {}}},
        {"op": "read", "newState": {"type": "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition"}},
        {"op": "create", "newState": {"type": "kubernetes:core/v1:Namespace", "inputs": {"kind": "Namespace"}}},
    ]
    script = tmp_path / "bin" / "pulumi"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\ncat <<'E'\n{json.dumps({'steps': steps})}\nE\n")
    script.chmod(0o755)
    (tmp_path / "stack").mkdir()
    env = {"PATH": f"{script.parent}:{os.environ['PATH']}"}
    assert project.Project(tmp_path, tmp_path / "stack", env).preview() == [{"kind": "Namespace"}]


def test_the_server_takes_tokens_and_paths_from_the_kubeconfig(tmp_path: Path) -> None:
    """A server behind a path, as some managed clusters have it; what it is asked is seen by a listener of ours."""
    seen: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            seen.append((self.path, self.headers["Authorization"]))
            self.send_response(200 if self.path.endswith("version") else 404)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        parts = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{listener.server_port}/k8s/c"}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "config").write_text(yaml.safe_dump(parts))
        server = Server(tmp_path / "config")
        assert server.get("/version") == {}
        assert server.get("/absent") is None
        listener.shutdown()
    assert seen == [("/k8s/c/version", "Bearer secret"), ("/k8s/c/absent", "Bearer secret")]

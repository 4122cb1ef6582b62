"""What the demo on the user's own cluster is made of: the user's kubeconfig and `pulumi`, taken as the user means them.

Aspects: contexts, files and paths as kubectl takes them; which `pulumi` will do; what a preview says; servers behind
a path.
"""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from dispatch_local.demo import kubeconfig, project
from dispatch_local.demo.watching import Server
from dispatch_local.errors import LocalError, MissingError


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

"""Somebody with a cluster of their own, who plays the demo on it: what they have, what they type, what they see."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from dispatch_local import control
from dispatch_local.cluster import Cluster
from dispatch_local.demo.watching import Server
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
        init = Path("/proc", str(control.peer(Layout(self.cluster.name).control)))
        return (init / "root" / "run" / "dispatch-demo").exists()


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

"""What the story is played on: the local cluster, and two Pulumi projects run as a user would run them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dispatch_local import host, images, paths
from dispatch_local.cluster import Cluster
from dispatch_local.errors import LocalError

STACK = "demo"
NAMESPACE, QUEUE = "demo", "training"
LATE_POD = "late-execution"
INFRA = paths.LOCAL.parent
EXAMPLE = paths.LOCAL / "demo"
INIT_SECONDS, INTERRUPT_SECONDS = 120.0, 20.0
TAIL_LINES = 30


@dataclass
class Project:
    """One Pulumi project of the checkout, run from a folder of its own: its stack files stay out of the checkout."""

    source: Path
    folder: Path
    env: Mapping[str, str]
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """What `pulumi` printed, all runs."""
        return self.folder / "pulumi.log"

    def create(self) -> None:
        """Make the stack."""
        self.folder.mkdir(parents=True)
        for name in ("Pulumi.yaml", "__main__.py"):
            (self.folder / name).symlink_to(self.source / name)
        self._run(lambda running: running.wait(INIT_SECONDS), "stack", "init", STACK)

    def up(self, wait: Callable[[Callable[[], bool]], None]) -> None:
        """Run `pulumi up`; `wait(ended)` returns once `ended()` says so. Whatever it raises ends `pulumi` too."""
        settings = self.folder / f"Pulumi.{STACK}.yaml"
        content = yaml.safe_load(settings.read_text()) if settings.exists() else {}
        settings.write_text(yaml.safe_dump({**content, "config": self.config}))
        self._run(
            lambda running: wait(lambda: running.poll() is not None), "up", "--yes", "--skip-preview", "--stack", STACK
        )

    def _run(self, wait: Callable[[subprocess.Popen[bytes]], object], *arguments: str) -> None:
        running = self._start(*arguments)
        try:
            wait(running)
        except BaseException:
            _end(running)
            raise
        if running.returncode:
            tail = "\n".join(self.log.read_text().splitlines()[-TAIL_LINES:])
            raise LocalError(
                f"`pulumi {arguments[0]}` of {self.source.name} ended with {running.returncode}, expected 0. "
                f"It said last:\n{tail}"
            )

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = ["pulumi", "--non-interactive", "--color=never", "--cwd", str(self.folder), *arguments]
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C is ours to pass on, once.
            return subprocess.Popen(
                command,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


class Stage:
    """The demo's cluster and projects."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self.cluster = Cluster(name, say)
        self._say = say

    @property
    def folder(self) -> Path:
        """Everything of the demo that lies in files; goes away with the cluster."""
        return self.cluster.kubeconfig.parent / "demo"

    @property
    def state(self) -> Path:
        """Pulumi's own state files, below it."""
        return self.folder / "backend"

    def set_up(self) -> tuple[Project, Project]:
        """Bring up a fresh cluster; return the projects of the installation and of the example, not yet run."""
        host.require_root("the demo on a cluster of its own")
        if self.cluster.is_up():
            self._say(f"cluster {self.cluster.name} is up from an earlier demo: taking it down first")
            self.cluster.down()
        self.cluster.up()
        env = self.cluster.pulumi_env(self.folder)
        installation = Project(INFRA, self.folder / "infra", env, _installation())
        example = Project(
            EXAMPLE,
            self.folder / "example",
            env,
            {
                "dispatch-demo:namespace": NAMESPACE,
                "dispatch-demo:queue": QUEUE,
                "dispatch-demo:image": images.reference("training"),
                # Shorter than users have it: the patient job must still run when the urgent one is opened.
                "dispatch:preflightSeconds": 3,
            },
        )
        for project in (installation, example):
            project.create()
        return installation, example


def late_pod(ulid: str) -> dict[str, Any]:
    """Return a pod that is what an execution with A=1 would be that Kubernetes had lost sight of, and that returns.

    The same program on the same checkpoints; it belongs to no job, so nothing of the gates keeps it away.
    """
    env = {"DISPATCH_ADMISSION_COUNT": "1", "DISPATCH_ULID": ulid}
    return {
        "metadata": {"name": LATE_POD},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "nodeSelector": {"dispatch.local/node": "real"},
            "containers": [
                {
                    "name": "node",
                    "image": images.reference("training"),
                    "env": [{"name": name, "value": value} for name, value in env.items()],
                    "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
                }
            ],
            "volumes": [{"name": "checkpoints", "hostPath": {"path": "/run/dispatch-demo/checkpoints"}}],
        },
    }


def _installation() -> dict[str, Any]:
    """Return the configuration of `infra/` for a queue with room for one job of the demo."""
    quotas = {"cpu": "500m", "memory": "1Gi"}
    settings = {
        "image": images.reference("controller"),
        "allowImageTag": True,
        "imagePullPolicy": "Never",
        "replicas": 1,
        "leaseSeconds": 3,
        "nodeSelector": {"dispatch.local/node": "real"},
        # JobSet is here from its own release, and not by Trainer's chart.
        "guardRailAccounts": {"jobset": "jobset-system:jobset-controller-manager"},
        "localQueues": [{"name": QUEUE, "namespace": NAMESPACE, "createNamespace": True}],
        "flavors": [{"name": "demo", "nodeLabels": {}, "tolerations": [], "quotas": quotas}],
        "priorityClasses": [
            {"name": "demo-patient", "value": 100, "description": "Can wait"},
            {"name": "demo-urgent", "value": 1000, "description": "Cannot"},
        ],
    }
    return {f"dispatch-infra:{key}": value for key, value in settings.items()}


def _end(running: subprocess.Popen[bytes]) -> None:
    """Interrupt `pulumi` as Ctrl-C would, then kill what is left of it and of what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(INTERRUPT_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()

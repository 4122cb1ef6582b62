"""The one table of programs the local cluster and Pulumi need: what is built, at which version, from what.

Kueue, JobSet, Trainer and KWOK are built in their own module graphs, exactly as released. The others are
built in the small Go modules under `infra/local/programs/`, whose go.mod and go.sum pin every dependency.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from dispatch_local import paths

KUBERNETES = "v1.36.3"
PULUMI = "3.274.1"
KUEUE = "v0.19.2"
OLDER_KUEUES = ("v0.17.1",)
"""What the core of the tests is run with, too (`make versions`); nothing else builds them."""

STRIP = "-s -w"


@dataclass(frozen=True)
class Copy:
    """A file or directory of a Go module that is kept beside the programs, so that a warm start needs no Go."""

    module: str
    version: str
    source: str
    target: str


@dataclass(frozen=True)
class Group:
    """Programs that are built together and share one entry of the cache.

    `packages` maps the file under `bin/` to its Go package. They are built in the directory of ours named
    `directory`, or in `module` as released at `version`: one of the two is given, unless there is nothing to build.
    """

    name: str
    version: str
    packages: tuple[tuple[str, str], ...]
    directory: str | None = None
    module: str | None = None
    ldflags: str = STRIP
    copies: tuple[Copy, ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()

    @property
    def binaries(self) -> tuple[str, ...]:
        """Names of the programs under `bin/`."""
        return tuple(name for name, _ in self.packages)

    @property
    def key(self) -> str:
        """Name of the cache entry: changes with versions, flags, go.mod, go.sum and our own sources.

        The version of Go is recorded in the entry but is no part of its name: a machine with a full cache
        needs no Go, and a new patch release of Go does not cost half an hour.
        """
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode())
        if self.directory:
            for file in sorted((paths.MODULES / self.directory).iterdir()):
                if file.name in {"go.mod", "go.sum"} or file.suffix == ".go":
                    digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
        return f"{self.name}-{digest.hexdigest()[:12]}"

    @property
    def path(self) -> Path:
        """The cache entry; there once the group is built, with programs in `bin/`, YAML in `manifests/`."""
        return paths.cache() / "programs" / self.key


def _copies(module: str, version: str, *directories: str) -> tuple[Copy, ...]:
    return tuple(
        Copy(module, version, directory, f"manifests/{directory.rsplit('/', 1)[1]}") for directory in directories
    )


_KUEUE = "sigs.k8s.io/kueue"
_JOBSET = "sigs.k8s.io/jobset"
_TRAINER = "github.com/kubeflow/trainer/v2"
_KWOK = "sigs.k8s.io/kwok"
_PULUMI_KUBERNETES = "github.com/pulumi/pulumi-kubernetes/provider/v4"
_COMPONENTS = tuple(f"config/components/{part}" for part in ("crd", "rbac", "webhook", "manager"))


def _kueue() -> Group:
    """Return the release of Kueue that DISPATCH_KUEUE names; without it, the one that all else is tried with."""
    version = f"v{os.environ.get('DISPATCH_KUEUE', KUEUE).removeprefix('v')}"
    return Group(
        "kueue",
        version,
        (("kueue", f"{_KUEUE}/cmd/kueue"),),
        module=_KUEUE,
        copies=_copies(_KUEUE, version, *_COMPONENTS),
    )


# Short builds first: who waits sees soon that it works, and the machine is never idle at the end with one
# long link left.
GROUPS: tuple[Group, ...] = (
    Group("etcd", "v3.6.16", (("etcd", "go.etcd.io/etcd/server/v3"),), directory="etcd"),
    Group(
        "kubernetes",
        KUBERNETES,
        tuple(
            (name, f"k8s.io/kubernetes/cmd/{name}")
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
        ),
        directory="kubernetes",
        ldflags=f"{STRIP} -X k8s.io/component-base/version.gitVersion={KUBERNETES}",
    ),
    Group(
        "jobset",
        "v0.12.0",
        (("jobset", _JOBSET),),
        module=_JOBSET,
        copies=_copies(_JOBSET, "v0.12.0", *_COMPONENTS),
    ),
    Group(
        "trainer",
        "v2.3.0",
        (("trainer-controller-manager", f"{_TRAINER}/cmd/trainer-controller-manager"),),
        module=_TRAINER,
        copies=_copies(
            _TRAINER, "v2.3.0", *(f"manifests/base/{part}" for part in ("crds", "rbac", "webhook", "manager"))
        ),
    ),
    _kueue(),
    Group(
        "kwok",
        "v0.7.0",
        (("kwok", f"{_KWOK}/cmd/kwok"),),
        module=_KWOK,
        copies=_copies(_KWOK, "v0.7.0", "kustomize/rbac", "kustomize/stage"),
    ),
    # The charts of Kueue and Trainer, for the tests of infra/. JobSet's is put where a packed chart has it.
    Group(
        "charts",
        "v0.19.2",
        (),
        copies=(
            Copy(_KUEUE, KUEUE, "charts/kueue", "charts/kueue"),
            Copy(_TRAINER, "v2.3.0", "charts/kubeflow-trainer", "charts/kubeflow-trainer"),
            Copy(_JOBSET, "v0.12.0", "charts/jobset", "charts/kubeflow-trainer/charts/jobset"),
        ),
        # Trainer's chart names it, too. It is off by default; Helm wants to see it all the same.
        scripts=(("charts/kubeflow-trainer/charts/lws/Chart.yaml", "apiVersion: v2\nname: lws\nversion: 0.8.0\n"),),
    ),
    Group(
        "pulumi",
        PULUMI,
        (("pulumi", "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"),),
        directory="pulumi",
        ldflags=f"{STRIP} -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={PULUMI}",
    ),
    Group(
        "pulumi-python",
        "3.79.0",
        (("pulumi-language-python", "github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python"),),
        directory="pulumi-python",
        copies=(
            Copy(
                "github.com/pulumi/pulumi/sdk/v3",
                f"v{PULUMI}",
                "python/cmd/pulumi-language-python-exec",
                "bin/pulumi-language-python-exec",
            ),
        ),
        # The engine starts dynamic providers by this name; the interpreter is the one of the program's own
        # virtual environment.
        scripts=(
            (
                "bin/pulumi-resource-pulumi-python",
                '#!/bin/sh\nexec "${PULUMI_PYTHON_CMD:-python3}" -u -m pulumi.dynamic "$@"\n',
            ),
        ),
    ),
    Group(
        "pulumi-kubernetes",
        "4.24.0",
        (("pulumi-resource-kubernetes", "."),),
        directory="pulumi-kubernetes",
        ldflags=f"{STRIP} -X main.version=4.24.0",
        copies=(
            Copy(
                _PULUMI_KUBERNETES,
                "v4.0.0-20260115033456-f47bc2d6f199",
                "cmd/pulumi-resource-kubernetes/schema.json",
                "bin/pulumi-resource-kubernetes.schema.json",
            ),
        ),
    ),
)

CLUSTER_GROUPS = ("etcd", "kubernetes", "jobset", "trainer", "kueue", "kwok")
PULUMI_GROUPS = ("pulumi", "pulumi-python", "pulumi-kubernetes")


@cache
def group(name: str) -> Group:
    """Return the group of that name; KeyError if there is none."""
    for candidate in GROUPS:
        if candidate.name == name:
            return candidate
    raise KeyError(name)


def binary(name: str) -> Path:
    """Path of a built program, by the name of its file."""
    for candidate in GROUPS:
        if name in candidate.binaries:
            return candidate.path / "bin" / name
    raise KeyError(name)

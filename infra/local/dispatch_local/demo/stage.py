"""What the story is played on: a local cluster of its own, and two Pulumi projects run as a user would run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from dispatch_local import host, images, paths
from dispatch_local.cluster import Cluster
from dispatch_local.demo.project import Project
from dispatch_local.demo.site import Site
from dispatch_local.demo.watching import Server

INFRA = paths.LOCAL.parent
EXAMPLE = paths.LOCAL / "demo"
NAMESPACE = Site.namespace


class Place(Protocol):
    """What a play needs to know of where it plays."""

    @property
    def site(self) -> Site:
        """Names, images and mode."""

    def server(self) -> Server:
        """Return its API server, which is up once `set_up` has returned."""

    @property
    def state(self) -> Path:
        """Pulumi's own state files, below it."""

    def set_up(self) -> tuple[Project | None, Project]:
        """Return the projects of the installation (none in plain mode) and of the example, not yet run."""


class Stage:
    """A local cluster of the demo's own."""

    def __init__(self, name: str, say: Callable[[str], None], *, plain: bool = False) -> None:
        self.cluster = Cluster(name, say)
        self._say = say
        # The image of the controller is named after its sources, which plain mode need not read.
        controller = "" if plain else images.reference("controller")
        self.site = Site(images.reference("training"), controller, plain=plain)

    @property
    def folder(self) -> Path:
        """Everything of the demo that lies in files; goes away with the cluster."""
        return self.cluster.kubeconfig.parent / "demo"

    def server(self) -> Server:
        """Return its API server, for the administrator."""
        return Server(self.cluster.kubeconfig)

    @property
    def state(self) -> Path:
        """Pulumi's own state files, below it."""
        return self.folder / "backend"

    def set_up(self) -> tuple[Project | None, Project]:
        """Bring up a fresh cluster, without what the play does not need; return its projects, not yet run."""
        host.require_root("the demo on a cluster of its own")
        if self.cluster.is_up():
            self._say(f"cluster {self.cluster.name} is up from an earlier demo: taking it down first")
            self.cluster.down()
        plain = self.site.plain
        wanted = ("pause", "training") if plain else ("pause", "training", "controller")
        self.cluster.up(images=wanted, kwok_nodes=0, without={"kueue"} if plain else set())
        env = self.cluster.pulumi_env(self.folder)
        example = Project(EXAMPLE, self.folder / "example", env, self.site.example())
        example.create()
        if plain:
            return None, example
        installation = Project(INFRA, self.folder / "infra", env, self.site.installation())
        installation.create()
        return installation, example

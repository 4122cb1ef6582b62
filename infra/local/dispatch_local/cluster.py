"""The local cluster as Python sees it: up, down, its files, and its parts held up or started again."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from dispatch_local import build, control, engine, host, node, parts, paths, programs, waiting
from dispatch_local.errors import LocalError, NotUpError
from dispatch_local.layout import Addresses, Layout
from dispatch_local.locks import directory_lock
from dispatch_local.startup import Startup, tail

IMAGES = ("pause", "training", "controller")
KWOK_NODES = 2


class Cluster:
    """The cluster called `name`, whether it is up or not. Methods may be called from one thread at a time."""

    def __init__(self, name: str, say: Callable[[str], None] = print) -> None:
        self._layout = Layout(name)
        self._say = say
        self.name = name

    # --- life ---------------------------------------------------------------------------------------------

    def up(
        self,
        node: bool = True,
        images: Sequence[str] = IMAGES,
        *,
        kwok_nodes: int = KWOK_NODES,
        without: Collection[str] = (),
        bare: bool = False,
    ) -> None:
        """Bring the cluster up and return when it is ready; nothing happens if it already is.

        `node` adds the real node with `images` on it, `kwok_nodes` so many fake ones. `without` leaves out
        managers, for example {"kueue"}. A `bare` cluster is etcd and an API server that knows all kinds: nothing
        acts on any object, and no webhook is asked. It is there to be measured.
        If anything fails or interrupts it, nothing is left behind. What a dead cluster of the same name left
        is removed first.
        """
        assert set(without) <= set(parts.MANAGERS), without
        assert not (bare and node), "a bare cluster has no node"
        if node:
            host.require_root("the local cluster with its real node")
            host.ensure_packages(host.BASE_PACKAGES | host.NODE_PACKAGES, self._say)
            host.require_controllers()
        else:
            host.ensure_packages(host.BASE_PACKAGES if host.is_root() else host.ROOTLESS_PACKAGES, self._say)
        # What this cluster does not need is not built for it.
        unneeded = {*without, *(() if kwok_nodes else ("kwok",))}
        build.ensure([name for name in programs.CLUSTER_GROUPS if name not in unneeded], self._say)
        with directory_lock(self._layout.home):
            if self.is_up():
                self._say(f"cluster {self.name} is already up; nothing changed")
                return
            try:
                if self._leftovers():
                    self._say(f"removing what an earlier cluster {self.name} left behind")
                    self._clean()
                tars = self._built_images(images) if node else []
                self._say(f"starting cluster {self.name}")
                Startup(self._layout, self._say, node, kwok_nodes, without, tars, bare).run()
            except BaseException:
                self._clean()
                self._layout.home.rmdir()
                raise

    def down(self) -> None:
        """End the cluster and remove everything of it; nothing happens if it is not there."""
        if not self._layout.home.exists() and not self._leftovers():
            self._say(f"cluster {self.name} is not up; nothing to do")
            return
        with directory_lock(self._layout.home):
            self._clean()
            self._layout.home.rmdir()
        self._say(f"cluster {self.name} is down; nothing of it is left")

    def is_up(self) -> bool:
        """Whether the cluster is up: it started completely and its init process lives."""
        return bool(self._state().get("ready")) and control.listens(self._layout.control) is True

    def _state(self) -> dict[str, Any]:
        """Return what the state file says; nothing if it is absent, or half there after a power cut."""
        try:
            state = json.loads(self._layout.state.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def _leftovers(self) -> bool:
        home = self._layout.home
        return (home.exists() and any(home.iterdir())) or host.has_cgroups(self._layout) or host.has_links(self._layout)

    def _clean(self) -> None:
        """Remove everything but the home directory itself, which is the lock and must be held.

        Can be done again after it was interrupted.
        """
        previous = signal.getsignal(signal.SIGINT)
        try:
            # A second Ctrl-C would only leave for later what is done in a second.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except ValueError:
            previous = None  # not the main thread
        try:
            # With the init process the kernel ends all others; those in between are asked again.
            waiting.until("the end of the cluster's processes", lambda: not host.end_processes(self._layout))
            host.remove_links(self._layout)
            waiting.until("the removal of the cluster's cgroups", lambda: host.remove_cgroups(self._layout))
            for path in self._layout.home.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        finally:
            if previous is not None:
                signal.signal(signal.SIGINT, previous)

    def _built_images(self, wanted: Sequence[str]) -> list[Path]:
        from dispatch_local import images

        return list(images.build(paths.cache() / "images", wanted, self._say).values())

    # --- what it offers -----------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; there while the cluster is up."""
        return self._layout.kubeconfig

    @property
    def context(self) -> str:
        """Name of the context in the kubeconfig."""
        return self._layout.context

    @property
    def etcd(self) -> str:
        """The URL of a bare cluster's etcd; others keep theirs to themselves."""
        return f"http://{Addresses(self._state()['index']).cluster}:2379"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log from its first request on, one JSON event a line, never rotated."""
        return self._layout.audit_log

    @property
    def logs_dir(self) -> Path:
        """One log a part, PART.log."""
        return self._layout.logs

    def log_tail(self, part: str, lines: int) -> str:
        """Return the last lines of a part's log."""
        return tail(self._layout.logs / f"{part}.log", lines)

    def load_image(self, tar: Path) -> None:
        """Put one more image on the real node."""
        self._require_up()
        if not self._state()["node"]:
            raise LocalError(f"cluster {self.name} is up without a real node; no image can be loaded")
        pid = control.peer(self._layout.control)
        node.load_image(pid, str(self._layout.containerd_socket), str(tar))

    @property
    def programs_path(self) -> str:
        """What goes in front of PATH for Pulumi: its directories, joined."""
        return engine.programs_path()

    def pulumi_env(self, state_dir: Path) -> dict[str, str]:
        """Return the environment in which `pulumi` works offline, its state under `state_dir`."""
        build.ensure(programs.PULUMI_GROUPS, self._say)
        return engine.environment(state_dir, self.kubeconfig)

    # --- its parts ----------------------------------------------------------------------------------------

    def status(self) -> dict[str, dict[str, Any]]:
        """Each part: pid (0: not running), since (Unix time), starts, exit (of the last run), paused."""
        self._require_up()
        found: dict[str, dict[str, Any]] = control.call(self._layout.control, "status")["parts"]
        return found

    def memory(self) -> dict[int, int]:
        """Resident bytes of every process of the cluster, by its process id inside."""
        return host.memory(self._layout)

    def pause(self, part: str) -> None:
        """Hold a part up as it is (SIGSTOP), and return once it does nothing more.

        LocalError if there is no such part or it is not running.
        """
        self._require_part(part)
        control.call(self._layout.control, "signal", part=part, signal=int(signal.SIGSTOP))
        waiting.until(f"{part} held", lambda: bool(self.status()[part]["paused"]))

    def resume(self, part: str) -> None:
        """Let a held part go on (SIGCONT); LocalError as with `pause`."""
        self._require_part(part)
        control.call(self._layout.control, "signal", part=part, signal=int(signal.SIGCONT))

    def restart(self, part: str) -> None:
        """End a part (SIGTERM, SIGKILL if it takes long), start it again and wait until it is ready.

        A held part goes on with it. LocalError if there is no such part, or none that runs.
        """
        before = self._require_part(part)["starts"]
        control.call(self._layout.control, "restart", part=part)

        def again() -> bool:
            status = self.status()[part]
            return bool(status["starts"] > before and status["pid"])

        waiting.until(f"{part} started again", again)
        state = self._state()
        addresses = Addresses(state["index"], state.get("rootless", False))
        url = parts.define(self._layout, addresses)[part].ready
        if url is not None:
            waiting.until(f"{part} ready", lambda: waiting.answers(url, self._layout.pki / "ca.crt"))

    @contextmanager
    def configured(self, manager: str, edit: Callable[[dict[str, Any]], object]) -> Iterator[None]:
        """Have Kueue, JobSet or Trainer run with its configuration edited: it starts again now, and at the end."""
        file = self._layout.configuration / f"{manager}.yaml"
        before = file.read_text()
        changed = yaml.safe_load(before)
        edit(changed)
        try:
            file.write_text(yaml.safe_dump(changed, sort_keys=False))
            self.restart(manager)
            yield
        finally:
            file.write_text(before)
            self.restart(manager)

    def _require_part(self, part: str) -> dict[str, Any]:
        found = self.status()
        if part not in found:
            raise LocalError(f"cluster {self.name} has no part {part!r}; it has {', '.join(found)}")
        return found[part]

    def _require_up(self) -> None:
        if not self.is_up():
            raise NotUpError(
                f"cluster {self.name} is not up. Bring it up: python -m dispatch_local --name {self.name} up"
            )

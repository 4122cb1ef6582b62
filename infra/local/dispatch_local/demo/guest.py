"""The demo on a cluster that the user has: it looks first, asks before it creates, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from dispatch_gates.contract import names
from dispatch_local import build, images, pki, programs, waiting
from dispatch_local.demo import kubeconfig, project
from dispatch_local.demo.project import Project
from dispatch_local.demo.site import CHECKPOINTS, Site
from dispatch_local.demo.stage import EXAMPLE, INFRA
from dispatch_local.demo.watching import RefusedError, Server
from dispatch_local.engine import environment
from dispatch_local.errors import LocalError, MissingError

NAMESPACE = "dispatch-demo"
RUNTIME = "dispatch-demo"
HOSTNAME = "kubernetes.io/hostname"
KINDS = {
    "Trainer": (names.TRAINJOBS, "https://trainer.kubeflow.org (2.3 is what this was tried with)"),
    "JobSet": (names.JOBSETS, "it comes with Trainer (0.12 is what this was tried with)"),
    "Kueue": (names.WORKLOADS, "https://kueue.sigs.k8s.io (0.19 is what this was tried with)"),
}
# What a demo has to do by itself; Pulumi's objects are covered by the first.
RIGHTS = (
    ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "", "namespaces"),
    ("delete", "", "namespaces"),
    ("create", "trainer.kubeflow.org", "trainjobs"),
    ("create", "trainer.kubeflow.org", "clustertrainingruntimes"),
    ("watch", "", "pods"),
)
Object = dict[str, Any]


@dataclass(frozen=True)
class Thing:
    """One object that the demo makes: its address on the API server, and what people call it."""

    path: str
    said: str


class Guest:
    """The user's cluster, by one context of the user's kubeconfigs. Use as a context manager: leaving cleans up."""

    def __init__(
        self,
        context: str,
        say: Callable[[str], None],
        *,
        plain: bool = False,
        training: str | None = None,
        controller: str | None = None,
    ) -> None:
        self.context, self._say, self._brought = context, say, (training, controller)
        self.site = Site(
            training or images.reference("training"),
            controller or ("" if plain else images.reference("controller")),
            namespace=NAMESPACE,
            cluster_queue="dispatch-demo",
            creates_namespace=False,
            pull="IfNotPresent",
            plain=plain,
            guard_rails=False,
        )
        self._projects: list[Project] = []
        self._things: list[Thing] = []
        self._began = False

    def __enter__(self) -> Guest:
        """Read the kubeconfig; nothing is asked of the cluster yet."""
        content = kubeconfig.select(kubeconfig.sources(os.environ), self.context)
        self._folder = Path(tempfile.mkdtemp(prefix="dispatch-demo-"))
        self._kubeconfig = self._folder / "kubeconfig"
        try:
            pki.write_private(self._kubeconfig, yaml.safe_dump(content, sort_keys=False).encode())
            self._server = Server(self._kubeconfig)
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove everything of the demo; LocalError names what could not be, and where its Pulumi state is kept."""
        # Another Ctrl-C would leave a part of it there.
        previous = signal.signal(signal.SIGINT, lambda *_: self._say("still removing it; a moment"))
        try:
            if self._began:
                self._clean()
        finally:
            shutil.rmtree(self._folder)
            signal.signal(signal.SIGINT, previous)

    @property
    def state(self) -> Path:
        """Pulumi's own state files, below it."""
        return self._folder / "backend"

    def server(self) -> Server:
        """Return its API server, by the user's own credentials."""
        return self._server

    # --- before ---------------------------------------------------------------------------------------------

    def missing(self) -> list[str]:
        """Look at the cluster; return what is missing or in the way, each with what to do. Changes nothing."""
        try:
            version = self._server.get("/version") or {}
        except OSError as error:
            return [f"the API server of context {self.context!r} does not answer: {error}"]
        self._say(f"context {self.context}: Kubernetes {version.get('gitVersion', '?')}")
        try:
            wrong = [*self._kinds()]
            if not wrong:
                wrong += [*self._rights(), *self._node(), *self._others()]
        except RefusedError as error:
            wrong = [f"{error}; the demo needs an administrator"]
        return wrong

    def _kinds(self) -> Iterator[str]:
        for title, (kind, where) in KINDS.items():
            if self.site.plain and title == "Kueue":
                continue
            found = self._server.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}")
            versions = [each for each in (found or {}).get("spec", {}).get("versions", []) if each.get("served")]
            if kind.version not in {each["name"] for each in versions}:
                yield f"{title} is missing ({kind} {kind.version} is not served): install it, {where}"
            elif kind is names.TRAINJOBS and "runtimePatches" not in str(versions):
                yield "Trainer is too old: its TrainJob has no spec.runtimePatches, which carry A; 2.3 is needed"
            else:
                self._say(f"  {title}: {kind} {kind.version} is served")

    def _rights(self) -> Iterator[str]:
        for verb, group, resource in RIGHTS:
            attributes = {"verb": verb, "group": group, "resource": resource}
            body = {"spec": {"resourceAttributes": attributes}}
            answer = self._server.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
            if not answer.get("status", {}).get("allowed"):
                what = f"{resource}.{group}" if group else resource
                yield f"you may not {verb} {what} there; the demo needs an administrator"

    def _node(self) -> Iterator[str]:
        """Choose the node: the checkpoints lie on one. Of images that nobody brought it must have ours."""
        wanted = [self.site.training] if self.site.plain else [self.site.training, self.site.controller]
        ours = {reference for reference, brought in zip(wanted, self._brought, strict=False) if brought is None}
        seen = list[str]()
        for node in (self._server.get("/api/v1/nodes") or {}).get("items", []):
            name, status = node["metadata"]["name"], node["status"]
            ready = {each["type"]: each["status"] for each in status.get("conditions", [])}.get("Ready")
            taints = [each for each in node["spec"].get("taints", []) if each["effect"] != "PreferNoSchedule"]
            if ready != "True" or taints or HOSTNAME not in node["metadata"].get("labels", {}):
                continue
            has = {_short(each) for image in status.get("images", []) for each in image.get("names") or []}
            lacks = sorted(ours - has)
            if not lacks:
                self.site = replace(self.site, node={HOSTNAME: node["metadata"]["labels"][HOSTNAME]})
                self._say(f"  node: {name}")
                return
            seen.append(f"{name} lacks {', '.join(lacks)}")
        if not seen:
            yield "no node is Ready, free of taints and has the label kubernetes.io/hostname"
            return
        yield (
            f"no node has the demo's images ({'; '.join(seen[:3])}). They are in no registry. "
            "`python -m dispatch_local images` makes them as files: load them on a node (`kind load image-archive "
            "FILE`, `ctr -n k8s.io images import FILE`; the node lists them half a minute later), or push them to a "
            "registry of yours and name them: IMAGE=... CONTROLLER_IMAGE=..."
        )

    def _others(self) -> Iterator[str]:
        """Say what of the gates is there already, and would be another's."""
        if not self.site.plain:
            checks = (self._server.get(f"/apis/{names.ADMISSION_CHECKS.api_version}/admissionchecks") or {}).get(
                "items", []
            )
            for check in checks:
                if check["spec"].get("controllerName") == names.CONTROLLER_NAME:
                    yield (
                        f"the gates are installed already (AdmissionCheck {check['metadata']['name']}): the demo "
                        "brings its own controller, and two must not serve one cluster. PLAIN=1 needs none"
                    )
        things = [
            Thing(f"/api/v1/namespaces/{NAMESPACE}", f"Namespace {NAMESPACE}"),
            Thing(
                f"/apis/{names.CLUSTER_TRAINING_RUNTIMES.api_version}/clustertrainingruntimes/{RUNTIME}",
                f"ClusterTrainingRuntime {RUNTIME}",
            ),
        ]
        for thing in things:
            if self._server.get(thing.path) is not None:
                yield f"{thing.said} is there already: remove it, if an earlier demo left it"
        self._things = things

    # --- during ---------------------------------------------------------------------------------------------

    def engine(self) -> bool:
        """Say which `pulumi` plays; return whether it is the user's own."""
        version = project.users_own()
        if project.will_do(version):
            self._say(f"  pulumi: your own, {version}")
            return True
        have = f"yours is {version}" if version else "you have none on PATH"
        self._say(f"  pulumi: {have}, {project.needed()} or newer is needed: the demo's own, {programs.PULUMI}")
        return False

    def plan(self, users_own: bool) -> list[str]:
        """Prepare the projects; return all that they will create, in words. Changes nothing in the cluster.

        MissingError if something of it is there already.
        """
        if not users_own:
            build.ensure(programs.PULUMI_GROUPS, self._say)
        env = environment(self._folder, self._kubeconfig, ours=not users_own)
        example = Project(EXAMPLE, self._folder / "example", env, self.site.example())
        self._projects = [example]
        if not self.site.plain:
            installation = Project(INFRA, self._folder / "infra", env, self.site.installation())
            self._projects.append(installation)
        for each in self._projects:
            each.create()
        if not self.site.plain:
            self._say("  asking pulumi what the installation consists of")
            planned = [self._thing(inputs) for inputs in self._projects[1].preview()]
            there = [each.said for each in planned if self._server.get(each.path) is not None]
            if there:
                raise MissingError(f"these are there already and would be overwritten: {', '.join(there)}")
            self._things += planned
        return [each.said for each in self._things]

    def _thing(self, inputs: Object) -> Thing:
        version, kind, meta = inputs["apiVersion"], inputs["kind"], inputs["metadata"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        known = {
            each["kind"]: each
            for each in (self._server.get(base) or {}).get("resources", [])
            if "/" not in each["name"]
        }
        if kind not in known:
            raise LocalError(f"the cluster does not serve {kind} of {version}, which the installation consists of")
        namespace = f"/namespaces/{meta.get('namespace', 'default')}" if known[kind]["namespaced"] else ""
        where = f" in {meta.get('namespace', 'default')}" if namespace else ""
        return Thing(f"{base}{namespace}/{known[kind]['name']}/{meta['name']}", f"{kind} {meta['name']}{where}")

    def set_up(self) -> tuple[Project | None, Project]:
        """Make the demo's namespace; from here on leaving cleans up. Call `plan` before."""
        self._began = True
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}  # the checkpoints lie on the node
        self._server.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
        example, *installation = self._projects
        return (installation[0] if installation else None), example

    # --- afterwards -----------------------------------------------------------------------------------------

    def _clean(self) -> None:
        """Go back the way we came: jobs, checkpoints, installation, namespace; then look what is left."""
        problems = []
        self._say("removing everything of the demo from your cluster")
        example, *installation = self._projects
        steps = (example.destroy, self._remove_checkpoints, *(each.destroy for each in installation))
        for step in (*steps, self._remove_things):
            try:
                step()
            except (LocalError, OSError) as error:
                problems.append(str(error))
        if problems:
            kept = Path(tempfile.mkdtemp(prefix="dispatch-demo-kept-"))
            shutil.copytree(self._folder, kept, dirs_exist_ok=True, symlinks=True)
            said = "\n  ".join(problems)
            raise LocalError(f"the demo could not remove all that it made; Pulumi's state is kept in {kept}.\n  {said}")
        self._say("nothing of it is left there")

    def _remove_things(self) -> None:
        """Remove what is still there: also what a `pulumi` that was cut off had created and not yet recorded."""
        # None of it was there before: `plan` has looked.
        for thing in reversed(self._things):
            if self._server.get(thing.path) is not None:
                self._server.delete(thing.path)
        waiting.until("everything of the demo gone", lambda: ", ".join(self._left()) or True)

    def _left(self) -> list[str]:
        return [thing.said for thing in self._things if self._server.get(thing.path) is not None]

    def _remove_checkpoints(self) -> None:
        """Remove the folder on the node, by a pod that sees the folder above it."""
        folder = Path(CHECKPOINTS).parent
        script = f"import shutil; shutil.rmtree('/checkpoints/{folder.name}', ignore_errors=True)"
        body = self.site.pod("clean-up", str(folder.parent), command=("python3", "-c", script))
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        self._server.create(path, body)

        def over() -> bool | str:
            phase = ((self._server.get(f"{path}/clean-up") or {}).get("status") or {}).get("phase", "")
            if phase == "Failed":
                raise LocalError(f"the checkpoints in {folder} on node {self.site.node[HOSTNAME]} could not be removed")
            return True if phase == "Succeeded" else f"pod clean-up is {phase or 'absent'}"

        waiting.until(f"the removal of {folder} on the node", over, timeout=120)


def _short(reference: str) -> str:
    """Return an image's name as people write it: some runtimes put their default registry in front."""
    return reference.removeprefix("docker.io/").removeprefix("library/").removeprefix("localhost/")

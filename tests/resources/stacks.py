"""Stacks of the real Pulumi engine for tests: inline programs, a file backend, and the state file as evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pulumi import automation as auto

PROJECT: Final = "tests"
Program = Callable[[], None]


class Stack:
    """One stack. Its program may be another one at each run, as if the user had edited it."""

    def __init__(self, name: str, directory: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.directory = directory
        self.env = dict(env)
        self._made: auto.Stack | None = None
        self.backend = Path(env["PULUMI_BACKEND_URL"].removeprefix("file://"))

    def _stack(self, program: Program, env: Mapping[str, str]) -> auto.Stack:
        if self._made is None:
            options = auto.LocalWorkspaceOptions(work_dir=str(self.directory), env_vars=self.env)
            self._made = auto.create_or_select_stack(self.name, PROJECT, program, opts=options)
        self._made.workspace.program = program
        self._made.workspace.env_vars = {**self.env, **env}
        return self._made

    def up(self, program: Program, **env: str) -> Counts:
        """Run `pulumi up`; return how many resources were created, updated, and so on."""
        done = self._stack(program, env).up(on_output=_ignore)
        return Counts(done.summary.resource_changes, done.stdout + done.stderr)

    def up_fails(self, program: Program, **env: str) -> str:
        """Run `pulumi up`, which must fail; return what it printed."""
        return _failed(lambda: self._stack(program, env).up(on_output=_ignore))

    def replace_fails(self, program: Program, urn: str) -> str:
        """Run `pulumi up --replace`, which must fail; return what it printed."""
        return _failed(lambda: self._stack(program, {}).up(replace=[urn], on_output=_ignore))

    def preview(self, program: Program, **env: str) -> dict[str, int]:
        """Run `pulumi preview`; return how many resources it would create, update, and so on."""
        done = self._stack(program, env).preview(on_output=_ignore)
        return {str(getattr(kind, "value", kind)): count for kind, count in done.change_summary.items()}

    def refresh(self, **env: str) -> Counts:
        """Run `pulumi refresh`."""
        done = self._stack(_nothing, env).refresh(on_output=_ignore)
        return Counts(done.summary.resource_changes, done.stdout + done.stderr)

    def refresh_fails(self, **env: str) -> str:
        """Run `pulumi refresh`, which must fail; return what it printed."""
        return _failed(lambda: self._stack(_nothing, env).refresh(on_output=_ignore))

    def destroy(self, **env: str) -> Counts:
        """Run `pulumi destroy`."""
        done = self._stack(_nothing, env).destroy(on_output=_ignore)
        return Counts(done.summary.resource_changes, done.stdout + done.stderr)

    def destroy_fails(self, **env: str) -> str:
        """Run `pulumi destroy`, which must fail; return what it printed."""
        return _failed(lambda: self._stack(_nothing, env).destroy(on_output=_ignore))

    @property
    def path(self) -> Path:
        """The engine's own state file."""
        return self.backend / ".pulumi" / "stacks" / PROJECT / f"{self.name}.json"

    def deployment(self) -> dict[str, Any]:
        """Return what the state file says now, also while an update is running."""
        checkpoint: dict[str, Any] = json.loads(self.path.read_text())["checkpoint"]["latest"] or {}
        return checkpoint

    def resources(self, kind: str = "") -> list[dict[str, Any]]:
        """Return the recorded resources of a kind, by the last part of its type token."""
        found = self.deployment().get("resources", [])
        return [resource for resource in found if resource["type"].rpartition(":")[2] == kind or not kind]

    def outputs(self, kind: str) -> dict[str, Any]:
        """Return the recorded outputs of the one resource of a kind."""
        (resource,) = self.resources(kind)
        outputs: dict[str, Any] = resource["outputs"]
        return outputs

    def pending(self) -> list[dict[str, Any]]:
        """Return the operations that were begun and not finished."""
        return list(self.deployment().get("pending_operations", []))

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Export the state, change each resource's outputs, and import it again."""
        stack = self._stack(_nothing, {})
        exported = stack.export_stack()
        for resource in (exported.deployment or {}).get("resources", []):
            change(resource.get("outputs", {}))
        stack.import_stack(exported)


class Counts(dict[str, int]):
    """How many resources of a run were created, updated, and so on, and what it printed."""

    def __init__(self, changes: Mapping[Any, int] | None, printed: str) -> None:
        super().__init__({str(getattr(kind, "value", kind)): count for kind, count in (changes or {}).items()})
        self.printed = printed

    @property
    def unchanged(self) -> bool:
        """Whether the run did nothing."""
        return set(self) == {"same"}


def _failed(run: Callable[[], object]) -> str:
    try:
        run()
    except auto.CommandError as error:
        return str(error)
    raise AssertionError("it went well")


def _nothing() -> None:
    """Declare nothing: refresh and destroy go by the state alone."""


def _ignore(_line: str) -> None:
    """Keep the engine's output out of the test's own."""

"""Stacks of the real Pulumi engine for tests: inline programs, a file backend, and the state file as evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pulumi import automation as auto

PROJECT: Final = "tests"
LEASE: Final = "resources-heartbeat"
"""What preflight takes for the sign that a controller is alive."""
CONFIG: Final = {"dispatch:lease": LEASE, "dispatch:preflightSeconds": "0.2"}
"""What the stacks are configured with: the probe of preflight is watched for a shorter time than users have it."""
Program = Callable[[], None]


RunFailedError = auto.CommandError
"""A run of the engine that did not end well."""


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
            settings = {self.name: auto.StackSettings(config=dict(CONFIG))}
            options = auto.LocalWorkspaceOptions(
                work_dir=str(self.directory), env_vars=self.env, stack_settings=settings
            )
            self._made = auto.create_or_select_stack(self.name, PROJECT, program, opts=options)
            # Asked for after each run, by three more processes; what was done is read off what the run printed.
            self._made.outputs = _no_outputs  # type: ignore[method-assign]
            self._made.info = _no_summary  # type: ignore[method-assign]
        self._made.workspace.program = program
        self._made.workspace.env_vars = {**self.env, **env}
        return self._made

    def up(self, program: Program, *, plan: Path | None = None, target: list[str] | None = None, **env: str) -> Counts:
        """Run `pulumi up`; return how many resources were created, updated, and so on."""
        done = self._stack(program, env).up(plan=str(plan) if plan else None, target=target, on_output=self._keep)
        return Counts(done.stdout + done.stderr)

    def up_with_all_logs(self, program: Program) -> None:
        """Run `pulumi up` with all that the engine can log of itself."""
        self._stack(program, {}).up(
            log_verbosity=11, log_to_std_err=True, log_flow=True, debug=True, on_output=self._keep, on_error=self._keep
        )

    def up_fails(self, program: Program, **env: str) -> str:
        """Run `pulumi up`, which must fail; return what it printed."""
        return self._failed(lambda: self._stack(program, env).up(on_output=self._keep))

    def replace_fails(self, program: Program, urn: str) -> str:
        """Run `pulumi up --replace`, which must fail; return what it printed."""
        return self._failed(lambda: self._stack(program, {}).up(replace=[urn], on_output=self._keep))

    def preview(self, program: Program, *, plan: Path | None = None, **env: str) -> dict[str, int]:
        """Run `pulumi preview`; return how many resources it would create, update, and so on."""
        done = self._stack(program, env).preview(plan=str(plan) if plan else None, on_output=self._keep)
        return {str(getattr(kind, "value", kind)): count for kind, count in done.change_summary.items()}

    def refresh(self, *, clear_pending_creates: bool = False, **env: str) -> Counts:
        """Run `pulumi refresh`."""
        done = self._stack(_nothing, env).refresh(clear_pending_creates=clear_pending_creates, on_output=self._keep)
        return Counts(done.stdout + done.stderr)

    def refresh_fails(self, **env: str) -> str:
        """Run `pulumi refresh`, which must fail; return what it printed."""
        return self._failed(lambda: self._stack(_nothing, env).refresh(on_output=self._keep))

    def destroy(self, *, tell: Callable[[str], object] = lambda _: None, **env: str) -> Counts:
        """Run `pulumi destroy`; `tell` is called with each line, as it is printed."""

        def printed(line: str) -> None:
            self._keep(line)
            tell(line)

        done = self._stack(_nothing, env).destroy(on_output=printed)
        return Counts(done.stdout + done.stderr)

    def destroy_fails(self, **env: str) -> str:
        """Run `pulumi destroy`, which must fail; return what it printed."""
        return self._failed(lambda: self._stack(_nothing, env).destroy(on_output=self._keep))

    def configure(self, **config: str) -> None:
        """Run `pulumi config set` for settings of dispatch's."""
        values = {f"dispatch:{key}": auto.ConfigValue(value) for key, value in config.items()}
        self._stack(_nothing, {}).set_all_config(values)

    def cancel(self) -> None:
        """Run `pulumi cancel`: the lock of an engine that was killed goes."""
        self._stack(_nothing, {}).cancel()

    def _keep(self, line: str) -> None:
        """Keep what was printed beside the state: it is searched for credentials, too."""
        with (self.backend / "printed.log").open("a") as log:
            log.write(f"{line}\n")

    def _failed(self, run: Callable[[], object]) -> str:
        try:
            run()
        except RunFailedError as error:
            self._keep(str(error))
            return str(error)
        raise AssertionError("it went well")

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

    def exported(self) -> auto.Deployment:
        """Run `pulumi stack export`."""
        return self._stack(_nothing, {}).export_stack()

    def imported(self, deployment: auto.Deployment) -> None:
        """Run `pulumi stack import`."""
        self._stack(_nothing, {}).import_stack(deployment)

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Export the state, change each resource's outputs, and import it again."""
        exported = self.exported()
        for resource in (exported.deployment or {}).get("resources", []):
            change(resource.get("outputs", {}))
        self.imported(exported)


class Counts(dict[str, int]):
    """How many resources of a run were created, updated, and so on, and what it printed."""

    def __init__(self, printed: str) -> None:
        self.printed = printed
        super().__init__({_KINDS[done]: int(count) for count, done in _COUNT.findall(printed)})

    @property
    def unchanged(self) -> bool:
        """Whether the run did nothing but look."""
        return "same" in self and set(self) <= {"same", "read"}


_KINDS: Final = {
    "created": "create",
    "updated": "update",
    "replaced": "replace",
    "deleted": "delete",
    "unchanged": "same",
}
_COUNT: Final = re.compile(rf"^ +\W*(\d+) ({'|'.join(_KINDS)})$", re.MULTILINE)


def _nothing() -> None:
    """Declare nothing: refresh and destroy go by the state alone."""


def _no_outputs() -> auto.OutputMap:
    """Ask for no outputs of the stack: what these tests look at is the state file."""
    return {}


def _no_summary(show_secrets: bool = False) -> auto.UpdateSummary:  # noqa: ARG001 # the SDK's signature
    """Ask for no history of the stack."""
    return auto.UpdateSummary("", datetime.now(UTC), "", {}, {}, "")

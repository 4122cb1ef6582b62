"""`dispatch-gates`: what people type. Thin: options in, operations of the project, results out.

Nothing here imports the client, Pulumi or rich before a command runs that needs it: `--help` and completion are quick.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

from dispatch_gates.cli.exits import Exit, InterruptedFailure

# Name: where its command is, and the line that --help shows. A new command is one more line.
COMMANDS: Final = {
    "preflight": ("preflight:command", "Prove the gates of a namespace and queue, before anything runs."),
    "status": ("status:command", "Say where one job, or all jobs, stand, and why."),
    "open": ("actions:open_command", "Let a recorded job past the start gate."),
    "hold": ("actions:hold_command", "Keep a job from running until it is released."),
    "release": ("actions:release_command", "Take a hold away."),
    "stop": ("actions:stop_command", "Delete a job and wait until nothing of it is left."),
    "audit": ("audit:command", "Look through API server audit logs for executions that broke a promise."),
    "completion": ("completion:command", "Print what completes commands and options in a shell."),
}

_EPILOG: Final = "\b\nExit codes:\n" + "\n".join(f"{code.value:>5}  {code.meaning}" for code in Exit)
PROGRAM: Final = "dispatch-gates"
_PLUGIN: Final = "kubectl-dispatch_gates"


class _Commands(click.Group):
    """The commands, each imported when it is asked for; and what Ctrl-C and SIGTERM do."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # as click declares it
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"dispatch_gates.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, under the name that it was called by."""
        plugin = Path(sys.argv[0]).name == _PLUGIN
        kwargs.setdefault("prog_name", "kubectl dispatch-gates" if plugin else PROGRAM)
        kwargs.setdefault("complete_var", "_DISPATCH_GATES_COMPLETE")
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; both signals end it the same way, whatever it does."""
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort) as interrupt:
            raise InterruptedFailure from interrupt


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


@click.group(
    cls=_Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "DISPATCH_GATES"},
)
@click.version_option(package_name="dispatch-gates", prog_name=PROGRAM)
def main() -> None:
    """Look at gated TrainJobs, and at the gates.

    \b
    Examples:
      dispatch-gates preflight -n training -q gpus
      dispatch-gates status -n training --watch
      dispatch-gates hold dj-01arz3ndektsv4rrffq69g5fav-s1 -n training

    Every option can also be set in the environment: DISPATCH_GATES_STATUS_NAMESPACE for `status --namespace`.
    """  # noqa: D301  # click reads the escape

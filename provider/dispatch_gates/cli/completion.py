"""`completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_DISPATCH_GATES_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print what completes commands and options in SHELL.

    \b
    Examples:
      source <(dispatch-gates completion bash)    # in ~/.bashrc
      source <(dispatch-gates completion zsh)     # in ~/.zshrc
      dispatch-gates completion fish | source    # in config.fish
    """  # noqa: D301  # click reads the escape
    found = get_completion_class(shell)
    assert found is not None, f"click knows no {shell}"
    from dispatch_gates.cli import PROGRAM

    root = ctx.find_root().command
    click.echo(found(root, {}, PROGRAM, _VARIABLE).source())

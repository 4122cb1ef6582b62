"""No credential in what is written: state, history, logs, previews, errors (BL-33).

The last word has the end of the whole run, where all that the engine wrote for any test is searched (conftest). Here:
that the search finds what there is, however it is wrapped; all that the engine can log of itself; inputs that are
secret.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pulumi
import pytest

from dispatch_gates.contract.objects import entries
from resources.credentials import of_kubeconfig, written
from resources.programs import component, inputs, job_of
from resources.stacks import Stack
from world import World

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <coroutine object run_in_stack:pytest.PytestUnraisableExceptionWarning"
    ),
]
SECRET = "correct-horse-battery-staple"


@pytest.mark.parametrize("padding", ["", "a", "ab", "abc"])
def test_the_search_finds_what_there_is(tmp_path: Path, padding: str) -> None:
    plain = f"{padding}{SECRET}{padding}"
    encoded = base64.b64encode(plain.encode()).decode()
    (tmp_path / "plain").write_text(plain)
    (tmp_path / "json").write_text(json.dumps({"a": encoded, "b": [f"x {encoded}"]}))
    (tmp_path / "compressed").write_bytes(gzip.compress(encoded.encode()))
    (tmp_path / "innocent").write_text(base64.b64encode(b"correct-horse-battery-stapl3").decode())
    assert {Path(path).name for path in written(tmp_path, {SECRET})} == {"plain", "json", "compressed"}


def test_nothing_that_the_engine_logs_holds_a_credential(world: World, stack: Stack) -> None:
    """The whole run's search, on the one run in which the engine tells all that it can."""
    stack.up_with_all_logs(component(inputs(world)))
    assert (stack.backend / "printed.log").stat().st_size > 100_000
    assert list(written(stack.backend.parent, of_kubeconfig(Path(stack.env["KUBECONFIG"])))) == []
    stack.destroy()


def test_an_input_that_is_secret_is_secret_in_the_state(world: World, stack: Stack) -> None:
    def given(secret: str) -> dict[str, pulumi.Output[str] | str]:
        return {"EPOCHS": "3", "TOKEN": pulumi.Output.secret(secret)}

    stack.up(lambda: component(inputs(world, env=given(SECRET)))())
    assert "env" in stack.up_fails(lambda: component(inputs(world, env=given(f"other-{SECRET}")))())
    stack.refresh()
    assert stack.up(lambda: component(inputs(world, env=given(SECRET)))()).unchanged
    # It does its work,
    env = {entry["name"]: entry.get("value") for entry in entries(job_of(world, stack).raw, "spec", "trainer", "env")}
    assert env["TOKEN"] == SECRET
    # and is found nowhere else.
    assert list(written(stack.backend.parent, {SECRET})) == []
    stack.destroy()
    assert list(written(stack.backend.parent, {SECRET})) == []

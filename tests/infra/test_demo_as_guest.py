"""The demo on a cluster that the user has, by a kubeconfig of the user's own.

Aspects: it says what is missing and asks before it creates anything; refused it leaves the cluster as it was; it plays
to the end in plain mode, with the user's `pulumi`, and leaves no object and no file on the node behind. In Kueue
mode, and interrupted: soak_guest.py. This file comes before those that leave an AdmissionCheck of dispatch's, which the
demo would refuse.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dispatch_gates.contract.names import Resource
from dispatch_local import engine, programs
from dispatch_local.demo import guest
from dispatch_local.demo.guest import Guest
from dispatch_local.layout import Layout
from infra.guest import CONTEXT, SECONDS, User, check_story

pytestmark = pytest.mark.usefixtures("unchanged")


def test_in_plain_mode_with_the_users_pulumi(user: User) -> None:
    path = f"{engine.programs_path()}:{os.environ['PATH']}"
    code, text = user.demo("--plain", "--yes", PATH=path)
    assert code == 0, text
    check_story(text)
    for said in (f"your own, {programs.PULUMI}", "held: the hold mark is set", "released: the hold mark is gone"):
        assert said in text
    assert "AdmissionCheck" not in text


def test_nobody_to_ask_is_a_no(user: User) -> None:
    code, text = user.demo()
    assert code == 2, text
    for planned in ("Namespace dispatch-demo", "Deployment dispatch-admission in dispatch-system", "AdmissionCheck"):
        assert planned in text
    assert "--yes" in text


@pytest.mark.parametrize("answer", ["\n", "\x03"])
def test_a_no_changes_nothing(user: User, answer: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dispatch_local", "demo", "--context", CONTEXT, "--plain"]
    with subprocess.Popen(
        command, env=user.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as it:
        os.close(theirs)
        seen = ""
        while "[y/N]" not in seen:
            seen += os.read(ours, 65536).decode(errors="replace")
        if answer == "\x03":
            os.killpg(it.pid, signal.SIGINT)
        else:
            os.write(ours, answer.encode())
        assert it.wait(SECONDS) in {1, 130}
    os.close(ours)
    assert "Namespace dispatch-demo" in seen


def test_what_is_missing_is_named_all_at_once(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(user.kubeconfig))
    absent = Resource("kueue.example.org", "v1", "workloads", "Workload")
    monkeypatch.setitem(guest.KINDS, "Kueue", (absent, "somewhere"))
    monkeypatch.setitem(guest.KINDS, "JobSet", (absent, "elsewhere"))
    with Guest(CONTEXT, print) as seen:
        missing = seen.missing()
    assert missing == [
        "JobSet is missing (workloads.kueue.example.org v1 is not served): install it, elsewhere",
        "Kueue is missing (workloads.kueue.example.org v1 is not served): install it, somewhere",
    ]


def test_images_that_no_node_has_are_named(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(user.kubeconfig))
    monkeypatch.setattr("dispatch_local.images.reference", lambda name: f"nowhere.example/{name}:9")
    with Guest(CONTEXT, print) as seen:
        (missing,) = seen.missing()
    for said in ("real-0 lacks nowhere.example/controller:9, nowhere.example/training:9", "kind load", "IMAGE=..."):
        assert said in missing


def test_somebody_without_rights_is_told(user: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    layout = Layout(user.cluster.name)
    tokens = dict(line.split(",")[1::-1] for line in (layout.pki / "tokens.csv").read_text().splitlines())
    content = yaml.safe_load(user.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["certificate-authority"] = str(layout.pki / "ca.crt")
    content["users"][0]["user"]["token"] = tokens["system:kube-scheduler"]
    (tmp_path / "config").write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with Guest(CONTEXT, print, plain=True) as seen:
        missing = " ".join(seen.missing())
    assert "403" in missing
    assert "administrator" in missing

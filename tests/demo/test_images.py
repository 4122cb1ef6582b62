"""How the local images are made.

Aspects: the Dockerfile interpreter does what it knows and refuses what it does not; layers hold exactly what
changed, the same bytes each time; the archive is what its digests say; the lock names each wheel; the key of
an image follows its sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from dispatch_local import dockerfile, host, images, oci, wheels
from dispatch_local.errors import LocalError

STEPS = """
ARG BASE=plain
FROM ${BASE} AS build
ARG GREETING=hello
COPY . /in/
# a comment
RUN echo "$GREETING" > /out \\
 && cat /in/file >> /out

FROM ${BASE}
COPY --from=build /out /opt/
ENV A=1 B="2 3"
LABEL title="a b" \\
      version=1
USER 65532:65532
WORKDIR /opt
ENTRYPOINT ["/opt/out", "--x"]
"""


@pytest.fixture(scope="module")
def busybox() -> Path:
    host.ensure_packages({images.BUSYBOX: "busybox-static"}, print)
    return Path(images.BUSYBOX)


@pytest.fixture
def build(tmp_path: Path, busybox: Path) -> dockerfile.Builder:
    def unpack(image: str, folder: Path) -> None:
        assert image == "plain"
        (folder / "bin").mkdir()
        shutil.copy(busybox, folder / "bin" / "busybox")
        for name in ("sh", "cat"):
            (folder / "bin" / name).symlink_to("busybox")

    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "file").write_text("from the context\n")
    (tmp_path / "work").mkdir()
    return dockerfile.Builder(tmp_path / "context", tmp_path / "work", unpack, {"GREETING": "hi"})


def test_runs_two_stages(build: dockerfile.Builder) -> None:
    stage = build.build(STEPS)
    assert (stage.root / "opt" / "out").read_text() == "hi\nfrom the context\n"
    assert not (stage.root / "in").exists()
    assert stage.env == {"PATH": dockerfile.PATH, "A": "1", "B": "2 3"}
    assert stage.labels == {"title": "a b", "version": "1"}
    assert (stage.user, stage.workdir, stage.entrypoint) == ("65532:65532", "/opt", ["/opt/out", "--x"])


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("FROM plain\nADD x y", "line 2: ADD is not known here"),
        ("RUN true", "line 1: RUN stands before the first FROM"),
        ("FROM plain\nRUN cat /none", "line 2: RUN ended with 1:\ncat: can't open '/none'"),
        ("FROM plain\nRUN --mount=type=cache true", "without flags"),
        ("FROM plain\nCOPY --chown=1 a b", "only --from"),
        ("FROM plain\nCOPY --from=other /a /b", "no earlier stage named other"),
        ("FROM plain\nCOPY absent /b", "line 2: COPY absent /b"),
        ("FROM plain\nENV A 1", "only NAME=value"),
        ("FROM plain\nUSER ${NOBODY}", "line 2: USER"),
        ("FROM plain\nENTRYPOINT sh", "line 2: ENTRYPOINT"),
        ("ARG X\nFROM plain", "line 1: ARG X has no value"),
        ("FROM plain\nRUN true \\", "continued beyond the end"),
        ("# nothing", "there is no FROM"),
    ],
)
def test_refuses_what_it_does_not_know(build: dockerfile.Builder, steps: str, expected: str) -> None:
    with pytest.raises(dockerfile.DockerfileError) as caught:
        build.build(steps)
    assert expected in str(caught.value)


def test_the_controllers_dockerfile_uses_only_what_is_known() -> None:
    known = {"ARG", "FROM", "COPY", "RUN", "ENV", "LABEL", "USER", "WORKDIR", "ENTRYPOINT"}
    assert {name for _, name, _ in dockerfile.parse(images.DOCKERFILE.read_text())} <= known


def test_a_layer_holds_what_changed_and_marks_what_went(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "kept").mkdir(parents=True)
    (root / "kept" / "same").write_text("1")
    (root / "kept" / "changed").write_text("1")
    (root / "gone" / "deep").mkdir(parents=True)
    before = oci.snapshot(root)
    (root / "kept" / "changed").write_text("2")
    (root / "kept" / "link").symlink_to("same")
    shutil.rmtree(root / "gone")
    for name in ("one.tar", "two.tar"):
        oci.write_layer(root, before, tmp_path / name)
    with tarfile.open(tmp_path / "one.tar") as tar:
        assert tar.getnames() == ["kept/changed", "kept/link", ".wh.gone"]
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_an_archive_is_what_its_digests_say(tmp_path: Path) -> None:
    (tmp_path / "layer.tar").write_bytes(b"layer")
    oci.write_archive("x/y:1", [tmp_path / "layer.tar"], oci.Settings(["/a"], {"B": "c"}), tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as tar:
        content = {each.name: tar.extractfile(each).read() for each in tar}  # type: ignore[union-attr] # all are files
    for name, blob in content.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}"
    (named,) = json.loads(content["index.json"])["manifests"]
    assert named["annotations"] == {"io.containerd.image.name": "x/y:1"}
    manifest = json.loads(content[f"blobs/sha256/{named['digest'].removeprefix('sha256:')}"])
    config = json.loads(content[f"blobs/sha256/{manifest['config']['digest'].removeprefix('sha256:')}"])
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert config["config"]["Entrypoint"] == ["/a"]


def test_pins_of_a_closure_come_from_the_lock() -> None:
    pin = "a==1 ; python_version >= '3' \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n"
    lock = f"{pin}    # via b\nb==2 \\\n    --hash=sha256:3\n"
    assert wheels.locked({"a"}, lock) == pin
    with pytest.raises(LocalError, match="lock lacks c"):
        wheels.locked({"a", "c"}, lock)


def test_the_closure_follows_extras_and_markers() -> None:
    found = wheels.closure(["import-linter", "no-such-thing; python_version < '3'"])
    assert {"import-linter", "grimp", "click"} <= found
    assert "no-such-thing" not in found


def test_the_controllers_wheels_know_no_pulumi() -> None:
    found = wheels.closure(wheels.requirements())
    assert "kubernetes" in found
    assert not {name for name in found if "pulumi" in name or "grpc" in name}


def test_a_cached_image_is_returned_as_it_is(tmp_path: Path) -> None:
    first = images.build(tmp_path, ["pause"], print)["pause"]
    made = first.stat().st_ino
    again = images.build(tmp_path, ["pause"], lambda text: pytest.fail(f"made again: {text}"))["pause"]
    assert (again, again.stat().st_ino) == (first, made)
    assert images.reference("pause") == "dispatch.local/pause:1"


def test_only_the_last_used_files_of_an_image_are_kept(tmp_path: Path) -> None:
    old = [tmp_path / f"pause-{number}.tar" for number in range(8)]
    for age, file in enumerate(old):
        file.touch()
        os.utime(file, (age, age))
    made = images.build(tmp_path, ["pause"], print)["pause"]
    assert set(tmp_path.glob("*.tar")) == {made, *old[-images.KEPT + 1 :]}


def test_the_controllers_reference_follows_its_content() -> None:
    assert images.reference("controller") == images.reference("controller")
    tag = images.reference("controller").rpartition(":")[2]
    assert len(tag) == 12
    assert int(tag, 16) >= 0

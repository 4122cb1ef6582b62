"""The environment in which `pulumi` works offline, or as little online as it can, and leaves the user's own alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dispatch_local import host, programs


def programs_path() -> str:
    """Return what goes in front of PATH for the Pulumi programs of the cache: their directories, joined."""
    return os.pathsep.join(str(programs.group(name).path / "bin") for name in programs.PULUMI_GROUPS)


def environment(state_dir: Path, kubeconfig: Path, *, ours: bool = True) -> dict[str, str]:
    """Return what to set for `pulumi`; its state, its plugins and its home lie under `state_dir`.

    `ours` uses the programs of the cache, which have to be there; else it is the `pulumi` on PATH, which may
    download the plugins that it lacks.
    """
    backend = state_dir / "backend"
    backend.mkdir(parents=True, exist_ok=True)
    # The virtual environment's own bin, not where its interpreter really lies.
    interpreter = Path(sys.executable).absolute()
    path = (str(interpreter.parent), *((programs_path(),) if ours else ()), os.environ.get("PATH", host.SYSTEM_PATH))
    settings = {
        "PATH": os.pathsep.join(path),
        "PULUMI_HOME": str(state_dir / "home"),
        "PULUMI_BACKEND_URL": f"file://{backend}",
        "PULUMI_CONFIG_PASSPHRASE": "local",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_PYTHON_CMD": str(interpreter),
        "KUBECONFIG": str(kubeconfig),
    }
    if ours:
        settings["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] = "true"
    return settings

"""Where things live on this machine: one place for what is kept, one for what lasts as long as a cluster."""

from __future__ import annotations

import os
from pathlib import Path

LOCAL = Path(__file__).resolve().parents[1]
MODULES = LOCAL / "programs"


def _base(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    return (Path(value) if value.startswith("/") else Path.home() / fallback) / "dispatch-gates"


def cache() -> Path:
    """Programs and images, kept between clusters and shared by checkouts: safe to delete, slow to refill."""
    return _base("XDG_CACHE_HOME", ".cache")


def clusters() -> Path:
    """One directory per cluster that is up: certificates, logs and all data, gone after `down`."""
    return _base("XDG_STATE_HOME", ".local/state") / "clusters"

"""The charts of Kueue and Trainer at the tested versions, and what the gates need of them, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import yaml

KUEUE: Final = ("oci://registry.k8s.io/kueue/charts/kueue", "0.19.2")
"""Address and version; the tests run these versions."""
TRAINER: Final = ("oci://ghcr.io/kubeflow/charts/kubeflow-trainer", "2.3.0")
"""It brings JobSet along."""

TRAINJOBS: Final = "trainer.kubeflow.org/trainjob"
GATE: Final = "AdmissionGatedBy"

# As released, but for one integration instead of thirteen, of which Kueue works on as many at a time as of batch Jobs.
# The chart takes it as a whole, as text.
_KUEUE_CONFIGURATION: Final = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "health": {"healthProbeBindAddress": ":8081"},
    "metrics": {"bindAddress": ":8443"},
    "webhook": {"port": 9443},
    "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
    "controller": {
        "groupKindConcurrency": {
            "TrainJob.trainer.kubeflow.org": 5,
            "Workload.kueue.x-k8s.io": 10,
            "LocalQueue.kueue.x-k8s.io": 5,
            "ClusterQueue.kueue.x-k8s.io": 5,
            "ResourceFlavor.kueue.x-k8s.io": 1,
        }
    },
    "clientConnection": {"qps": 300, "burst": 500},
    "integrations": {"frameworks": [TRAINJOBS]},
}


def kueue_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for Kueue's chart: those given, and what the gates need beside them.

    Kueue must know TrainJobs, and heed the start gate, whatever its version has as default. Raises `ValueError` where
    a given value forbids that.
    """
    ours = {
        "controllerManager": {"featureGates": []},
        "managerConfig": {"controllerManagerConfigYaml": json.dumps(_KUEUE_CONFIGURATION, indent=2)},
    }
    values = _merged(ours, given, "kueueChart.values")
    _check_configuration(values["managerConfig"]["controllerManagerConfigYaml"])
    values["controllerManager"]["featureGates"] = _gates(values["controllerManager"]["featureGates"])
    return values


def trainer_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for Trainer's chart: those given. Raises `ValueError` where nothing would come of one."""
    if "runtimes" in given:
        raise ValueError(
            "trainerChart.values.runtimes: the chart's runtimes come by a Helm hook, which is not run here. Declare "
            "them as objects of their own, and leave runtimes out."
        )
    return dict(given)


def _check_configuration(text: Any) -> None:
    where = "kueueChart.values.managerConfig.controllerManagerConfigYaml"
    try:
        configuration = yaml.safe_load(text)
        frameworks = (configuration.get("integrations") or {}).get("frameworks") or []
    except (yaml.YAMLError, AttributeError):
        raise ValueError(f"{where} is not valid: Kueue's configuration, as YAML in a text, was expected.") from None
    if TRAINJOBS not in frameworks:
        raise ValueError(
            f"{where} has no {TRAINJOBS} among integrations.frameworks: Kueue would not know of TrainJobs."
        )
    if "featureGates" in configuration:
        raise ValueError(
            f"{where} has featureGates: Kueue takes them from one place only; "
            "controllerManager.featureGates was expected."
        )


def _gates(given: Any) -> list[dict[str, Any]]:
    where = "kueueChart.values.controllerManager.featureGates"
    try:
        gates = {str(each["name"]): bool(each["enabled"]) for each in given}
    except (TypeError, KeyError):
        raise ValueError(f"{where} {given!r} is not valid: a list of name and enabled was expected.") from None
    if not gates.setdefault(GATE, True):
        raise ValueError(f"{where} turns {GATE} off: Kueue would start jobs that nobody has opened.")
    return [{"name": name, "enabled": enabled} for name, enabled in gates.items()]


def _merged(ours: Mapping[str, Any], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return both as one, level by level; a given value wins."""
    result = dict(ours) | dict(given)
    for key, value in ours.items():
        if not isinstance(value, Mapping) or key not in given:
            continue
        if not isinstance(given[key], Mapping):
            raise ValueError(f"{where}.{key} {given[key]!r} is not valid: a mapping was expected.")
        result[key] = _merged(value, given[key], f"{where}.{key}")
    return result

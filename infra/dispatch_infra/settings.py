"""The stack configuration of `infra/`, read once into typed values.

`infra/Pulumi.yaml` documents every key. A value that is not valid raises `ValueError` with the key in front.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pulumi

from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import Level
from dispatch_gates.printable import is_path
from dispatch_infra import charts, checks
from dispatch_infra.arguments import (
    Chart,
    Check,
    ControllerArgs,
    Flavor,
    GuardRailsArgs,
    LocalQueue,
    ManagersArgs,
    PriorityClass,
    QueueArgs,
)
from dispatch_infra.policies.accounts import Accounts
from dispatch_infra.proofs import camel

_T = TypeVar("_T")
_REQUIRED: Final = object()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one stack installs, and where."""

    kubeconfig: str | None
    """Path of the kubeconfig; None leaves the choice to KUBECONFIG and the usual place."""
    context: str | None
    """Context in it; None means its current one."""
    managers: ManagersArgs
    controller: ControllerArgs
    guard_rails: GuardRailsArgs
    queue: QueueArgs


def read(config: pulumi.Config) -> Settings:
    """Read all keys of the stack; raise `ValueError` that names the first one that is not valid."""
    image = config.get("image")
    if not image:
        raise ValueError(f"{config.full_key('image')} is not set: the controller's image was expected.")
    return Settings(
        kubeconfig=_kubeconfig(config),
        context=config.get("context") or None,
        managers=_managers(config),
        controller=ControllerArgs(
            image=image,
            allow_image_tag=_get(config, "allowImageTag", pulumi.Config.get_bool, False),
            image_pull_policy=config.get("imagePullPolicy") or "IfNotPresent",
            namespace=config.get("namespace") or names.CONTROLLER_NAMESPACE,
            admission_check=_check_name(config),
            replicas=_get(config, "replicas", pulumi.Config.get_int, 2),
            lease_seconds=_get(config, "leaseSeconds", pulumi.Config.get_int, 15),
            node_selector=_object(config, "nodeSelector", {}, _texts),
            tolerations=_list(config, "tolerations", _mapping) or (),
            network_policy=_get(config, "networkPolicy", pulumi.Config.get_bool, False),
            api_server_ports=_object(config, "apiServerPorts", (443, 6443), _numbers),
            service_monitor=_get(config, "serviceMonitor", pulumi.Config.get_bool, False),
            prometheus_rule=_get(config, "prometheusRule", pulumi.Config.get_bool, False),
        ),
        guard_rails=_guard_rails(config),
        queue=_queue(config),
    )


def _managers(config: pulumi.Config) -> ManagersArgs:
    return ManagersArgs(
        kueue=_chart(config, "installKueue", "kueueChart", *charts.KUEUE),
        trainer=_chart(config, "installTrainer", "trainerChart", *charts.TRAINER),
    )


def _chart(config: pulumi.Config, install: str, key: str, address: str, version: str) -> Chart | None:
    raw: Any = _get(config, key, pulumi.Config.get_object, {})
    fields = _Fields(raw, config.full_key(key), "chart", "version", "values")
    if not _get(config, install, pulumi.Config.get_bool, False):
        if fields.raw:
            raise ValueError(f"{config.full_key(key)} is set, but {install} is not true: nothing would be installed.")
        return None
    chart = fields.get("chart", _text, address)
    return Chart(
        chart=chart,
        version=fields.get("version", _text, version if "://" in chart else None),
        values=fields.get("values", _mapping, {}),
    )


def _guard_rails(config: pulumi.Config) -> GuardRailsArgs:
    level = config.get("guardRails") or str(Level.ADMISSIONS)
    checks.one_of(level, [str(known) for known in Level], config.full_key("guardRails"))
    fields = {camel(name): name for name in vars(Accounts()) if name != "controller"}
    given = _Fields(
        _object(config, "guardRailAccounts", dict[str, str](), _texts), config.full_key("guardRailAccounts"), *fields
    )
    accounts = {fields[key]: given.get(key, _text) for key in given.raw}
    namespace = config.get("namespace") or names.CONTROLLER_NAMESPACE
    return GuardRailsArgs(
        level=Level(level),
        accounts=Accounts(controller=f"{namespace}:{names.CONTROLLER}", **accounts),
        admission_check=_check_name(config),
        kubeconfig=_kubeconfig(config),
        context=config.get("context") or None,
    )


def _queue(config: pulumi.Config) -> QueueArgs:
    local_queues = _list(config, "localQueues", _local_queue)
    flavors = _list(config, "flavors", _flavor)
    return QueueArgs(
        cluster_queue=config.get("clusterQueue") or "dispatch",
        local_queues=(LocalQueue(),) if local_queues is None else local_queues,
        flavors=(Flavor(),) if flavors is None else flavors,
        within_cluster_queue=config.get("preemption") or "LowerPriority",
        priority_classes=_list(config, "priorityClasses", _priority_class) or (),
        admission_check=_check_name(config),
        other_checks=_list(config, "admissionChecks", _check) or (),
        stop_policy=config.get("stopPolicy") or "None",
        existing=_get(config, "existingClusterQueue", pulumi.Config.get_bool, False),
        kubeconfig=_kubeconfig(config),
        context=config.get("context") or None,
    )


def _check_name(config: pulumi.Config) -> str:
    return config.get("admissionCheck") or names.ADMISSION_CHECK


def _kubeconfig(config: pulumi.Config) -> str | None:
    value = config.get("kubeconfig") or None
    # Pulumi stores what it is given: a path tells nobody anything, the content would hand over the cluster.
    if value and not is_path(value):
        raise ValueError(
            f"{config.full_key('kubeconfig')} holds the content of a kubeconfig: its path was expected, "
            "since credentials do not belong in configuration or state."
        )
    if value and not Path(value).expanduser().is_file():
        raise ValueError(f"{config.full_key('kubeconfig')} {value!r} is not a file: the path of one was expected.")
    return value


def _flavor(raw: Any, where: str) -> Flavor:
    fields = _Fields(raw, where, "name", "nodeLabels", "tolerations", "quotas")
    return Flavor(
        name=fields.get("name", _text),
        node_labels=fields.get("nodeLabels", _texts, {}),
        tolerations=fields.get("tolerations", _mappings, ()),
        quotas=fields.get("quotas", _texts),
    )


def _local_queue(raw: Any, where: str) -> LocalQueue:
    fields = _Fields(raw, where, "name", "namespace", "createNamespace")
    return LocalQueue(
        name=fields.get("name", _text),
        namespace=fields.get("namespace", _text),
        create_namespace=fields.get("createNamespace", _flag, False),
    )


def _priority_class(raw: Any, where: str) -> PriorityClass:
    fields = _Fields(raw, where, "name", "value", "description")
    return PriorityClass(
        name=fields.get("name", _text),
        value=fields.get("value", _number),
        description=fields.get("description", _text, ""),
    )


def _check(raw: Any, where: str) -> Check:
    fields = _Fields(raw, where, "name", "onFlavors")
    return Check(name=fields.get("name", _text), on_flavors=fields.get("onFlavors", _text_list, ()))


class _Fields:
    """The fields of one structured value; an unknown one is refused, as it is most likely a misspelt one."""

    def __init__(self, raw: Any, where: str, *known: str) -> None:
        self.raw = _mapping(raw, where)
        self.where = where
        unknown = sorted(self.raw.keys() - set(known))
        if unknown:
            raise ValueError(f"{where} has unknown fields {', '.join(unknown)}: {', '.join(known)} were expected.")

    def get(self, field: str, parse: Callable[[Any, str], _T], default: Any = _REQUIRED) -> _T:
        """Return the field as `parse` reads it; without a default it has to be there."""
        if field in self.raw:
            return parse(self.raw[field], f"{self.where}.{field}")
        if default is _REQUIRED:
            raise ValueError(f"{self.where}.{field} is missing.")
        result: _T = default
        return result


def _get(config: pulumi.Config, key: str, get: Callable[[pulumi.Config, str], _T | None], default: _T) -> _T:
    try:
        value = get(config, key)
    except pulumi.ConfigTypeError as error:
        raise ValueError(
            f"{config.full_key(key)} {error.value!r} is not valid: {error.expect_type} expected."
        ) from None
    return default if value is None else value


def _object(config: pulumi.Config, key: str, default: _T, parse: Callable[[Any, str], _T]) -> _T:
    raw = _get(config, key, pulumi.Config.get_object, None)
    return default if raw is None else parse(raw, config.full_key(key))


def _list(config: pulumi.Config, key: str, parse: Callable[[Any, str], _T]) -> tuple[_T, ...] | None:
    return _object(config, key, None, lambda raw, where: _items(raw, where, parse))


def _items(raw: Any, where: str, parse: Callable[[Any, str], _T]) -> tuple[_T, ...]:
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise ValueError(f"{where} {raw!r} is not valid: a list was expected.")
    return tuple(parse(item, f"{where}[{index}]") for index, item in enumerate(raw))


def _mapping(raw: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise ValueError(f"{where} {raw!r} is not valid: a mapping was expected.")
    return raw


def _mappings(raw: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    return _items(raw, where, _mapping)


def _texts(raw: Any, where: str) -> dict[str, str]:
    return {str(key): _text(value, f"{where}.{key}") for key, value in _mapping(raw, where).items()}


def _text_list(raw: Any, where: str) -> tuple[str, ...]:
    return _items(raw, where, _text)


def _text(raw: Any, where: str) -> str:
    # YAML turns an unquoted 8 into a number; a quota of 8 is meant all the same.
    if isinstance(raw, int) and not isinstance(raw, bool):
        return str(raw)
    if not isinstance(raw, str):
        raise ValueError(f"{where} {raw!r} is not valid: text was expected.")
    return raw


def _number(raw: Any, where: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise ValueError(f"{where} {raw!r} is not valid: a whole number was expected.")
    return raw


def _numbers(raw: Any, where: str) -> tuple[int, ...]:
    return _items(raw, where, _number)


def _flag(raw: Any, where: str) -> bool:
    if not isinstance(raw, bool):
        raise ValueError(f"{where} {raw!r} is not valid: true or false was expected.")
    return raw

"""Who is who to the API server, under the guard rails."""

from __future__ import annotations

from dataclasses import dataclass

from dispatch_gates.contract import names
from dispatch_infra import checks


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """Namespace and name of each ServiceAccount, as `NAMESPACE:NAME`; raises `ValueError` where one is neither.

    The defaults are those of the charts of Kueue and Trainer (which brings JobSet along), and of Kubernetes.
    """

    controller: str = f"{names.CONTROLLER_NAMESPACE}:{names.CONTROLLER}"
    kueue: str = "kueue-system:kueue-controller-manager"
    trainer: str = "kubeflow-system:kubeflow-trainer-controller-manager"
    jobset: str = "kubeflow-system:jobset-controller"
    job_controller: str = "kube-system:job-controller"
    garbage_collector: str = "kube-system:generic-garbage-collector"
    namespace_controller: str = "kube-system:namespace-controller"

    def __post_init__(self) -> None:
        for what, account in vars(self).items():
            namespace, _, name = account.partition(":")
            if not (namespace and name):
                raise ValueError(f"account {what} {account!r} is not valid: NAMESPACE:NAME was expected.")
            checks.label(namespace, f"namespace of account {what}")
            checks.name(name, f"name of account {what}")

    def users(self, *who: str) -> dict[str, str]:
        """Return for each a variable that says in CEL whether the request is its own, such as `byKueue`."""
        return {"by" + "".join(part.capitalize() for part in each.split("_")): self.is_user(each) for each in who}

    def is_user(self, who: str) -> str:
        """Return CEL: the request is by this account."""
        return f"request.userInfo.username == 'system:serviceaccount:{getattr(self, who)}'"

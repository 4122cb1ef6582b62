"""Those who act on one job of dispatch's beside the product: Kueue, Trainer, JobSet and Job controller, kubelet.

Each step is one write of one of them, in the order in which the real ones write (an eviction is two writes, and the
check is Pending again after the first). `executions` keeps the A of every pod that was started.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatch_gates.contract.names import ADMISSION_COUNT, JOBS, JOBSETS, PODS, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.objects import JsonObject
from model import objects
from model.apiserver import ApiServer
from model.objects import NAME, WORKLOAD
from model.promises import counts


def carry_count(server: ApiServer, name: str = NAME) -> bool:
    """Have Trainer apply the TrainJob's A to the suspended JobSet; return whether that changed anything."""
    if not server.has(JOBSETS, name) or not server.has(TRAINJOBS, name):
        return False
    found = counts(server.read(TRAINJOBS, name))
    before = server.read(JOBSETS, name)
    if before["spec"].get("suspend") is not True or len(found) != 1:
        return False
    (count,) = found

    def change(body: JsonObject) -> None:
        for job in body["spec"]["replicatedJobs"]:
            job["template"]["spec"]["template"]["metadata"]["annotations"][ADMISSION_COUNT] = count

    server.edit(JOBSETS, name, change)
    return server.read(JOBSETS, name) != before


class Cluster:
    """One job in Kueue mode, opened, its first reservation made and its check Pending."""

    def __init__(self, count: int = 0, *, more: Iterable[JsonObject] = (), second: int = 1) -> None:
        """`second`: how far Kueue's clock moves with each write; 0 has all of it within one second."""
        status = {"Suspended": True}
        self._second = second
        self.server = ApiServer(
            objects.trainjob(count),
            objects.jobset(count),
            objects.job(count, status=status),
            objects.workload(),
            *more,
        )
        self.server.idle = lambda _: self.trainer_acts()
        self.executions: list[int] = []
        self._seconds = 0

    def trainer_acts(self) -> bool:
        """Trainer applies what the TrainJob says to the suspended JobSet; return whether that changed anything."""
        return carry_count(self.server)

    def now(self) -> str:
        """Return Kueue's clock, in whole seconds as it writes them."""
        self._seconds += self._second
        return f"2026-01-01T01:{self._seconds // 60:02d}:{self._seconds % 60:02d}Z"

    @property
    def entry(self) -> JsonObject:
        """Our check's entry."""
        found: JsonObject = self.server.read(WORKLOADS, WORKLOAD)["status"]["admissionChecks"][0]
        return found

    def _workload(self, *, admission: bool, **status: bool) -> None:
        now = self.now()

        def change(body: JsonObject) -> None:
            kept = {entry["type"]: entry for entry in body["status"]["conditions"]}
            for kind, value in status.items():
                if kept.get(kind, {}).get("status") != str(value):
                    kept[kind] = objects.condition(kind, value, time=now)
            body["status"]["conditions"] = list(kept.values())
            body["status"].pop("admission", None)
            if admission:
                body["status"]["admission"] = {"clusterQueue": "dispatch"}

        self.server.edit(WORKLOADS, WORKLOAD, change)

    def admit(self) -> bool:
        """Kueue admits where every check is Ready, and then the job runs."""
        body = self.server.read(WORKLOADS, WORKLOAD)
        said = {entry["type"]: entry["status"] for entry in body["status"]["conditions"]}
        ready = all(entry["state"] == "Ready" for entry in body["status"]["admissionChecks"])
        if not ready or said.get("QuotaReserved") != "True" or said.get("Admitted") == "True":
            return False
        self._workload(admission=True, Admitted=True)
        self._run()
        return True

    def _run(self) -> None:
        """The TrainJob is resumed, Trainer and JobSet follow, and a pod starts under the A that is there."""
        self.server.edit(TRAINJOBS, NAME, lambda body: body["spec"].update(suspend=False))
        self.trainer_acts()
        self.server.edit(JOBSETS, NAME, lambda body: body["spec"].update(suspend=False))
        (found,) = counts(self.server.read(TRAINJOBS, NAME))
        self.server.put(objects.job(found, suspend=False, started=True, active=1, ready=1, status={"Suspended": False}))
        self.server.put(objects.pod(count=found, name=f"{NAME}-node-0-0-run{len(self.executions)}"))
        self.executions.append(int(found))

    def begin_eviction(self) -> None:
        """Kueue's first write: Evicted, and the check Pending again, while quota and admission still stand."""
        self._workload(admission=True, Evicted=True)
        now = self.now()

        def reset(body: JsonObject) -> None:
            for entry in body["status"]["admissionChecks"]:
                if entry["state"] != "Pending":
                    entry.update(state="Pending", message="Reset to Pending after eviction.", lastTransitionTime=now)

        self.server.edit(WORKLOADS, WORKLOAD, reset)

    def suspend(self) -> None:
        """Kueue suspends the TrainJob, and Trainer, JobSet and the Job controller follow; the pods linger."""
        self.server.edit(TRAINJOBS, NAME, lambda body: body["spec"].update(suspend=True))
        self.server.edit(JOBSETS, NAME, lambda body: body["spec"].update(suspend=True))
        body = self.server.read(JOBS, f"{NAME}-node-0")
        found = body["spec"]["template"]["metadata"]["annotations"][ADMISSION_COUNT]
        self.server.put(objects.job(found, status={"Suspended": True}))

    def clear_quota(self) -> None:
        """Kueue's second write: quota and admission are gone. It does not look at the check."""
        self._workload(admission=False, QuotaReserved=False, Admitted=False)

    def end_pods(self) -> None:
        """The last process is gone, and the pods with it."""
        for key in [key for key in self.server.state.objects if key.resource == PODS]:
            self.server.remove(PODS, key.name)

    def reserve(self) -> None:
        """Kueue reserves quota, and admits in the same write where every check is Ready."""
        self._workload(admission=True, QuotaReserved=True, Evicted=False)
        self.admit()

    def evict(self, *, linger: bool = False) -> None:
        """A whole eviction and the next reservation, with or without pods that are still ending."""
        self.begin_eviction()
        self.suspend()
        self.clear_quota()
        if not linger:
            self.end_pods()
        self.reserve()

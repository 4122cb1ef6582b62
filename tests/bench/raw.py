"""The floor: only the requests that the rules need, with ready-made bodies, by threads that parse nothing.

A process of its own, told on standard input what to do. It shares evidence as the controller does, and takes
everything for granted that the controller has to find out.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Iterator
from typing import Final

from bench.site import INDEX, VERSION, Copies, job_name
from bench.wire import Server, Wire
from dispatch_gates.cluster.connection import path_of
from dispatch_gates.contract.names import ADMISSION_COUNT, JOBSET_NAME, JOBSETS, WORKLOADS

WORKERS: Final = 64


class Shared:
    """Lists by the JobSet's name, of which one is under way at a time: those that wait go out as one."""

    def __init__(self, wire: Wire, copies: Copies, kind: str) -> None:
        self._wire, self._copies, self._kind = wire, copies, kind
        self._turn, self._guard = threading.Lock(), threading.Lock()
        self._waiting: dict[str, threading.Event] = {}

    def list(self, name: str) -> None:
        """Return once a list that was sent after this call has been answered."""
        with self._guard:
            done = self._waiting.setdefault(name, threading.Event())
        with self._turn:
            if done.is_set():
                return
            with self._guard:
                batch, self._waiting = self._waiting, {}
            selector = f"{JOBSET_NAME} in ({','.join(batch)})"
            self._wire.get(self._copies.listing(self._kind, selector))
            for each in batch.values():
                each.set()


class Raw:
    """The driver."""

    def __init__(self, server: Server, namespace: str, jobs: int) -> None:
        self.wire = Wire(server)
        self.copies = Copies(namespace)
        self.jobs = Shared(self.wire, self.copies, "Job")
        self.pods = Shared(self.wire, self.copies, "Pod")
        self.acknowledged = [threading.Event() for _ in range(jobs)]
        self.work: queue.Queue[int] = queue.Queue()
        self.conflicts = 0

    def watch_jobsets(self, version: str) -> None:
        """Note which JobSets carry the new A."""
        wanted = f'"{ADMISSION_COUNT}":"{self.copies.count + 1}"'.encode()
        for line in self._watch(path_of(JOBSETS, self.copies.namespace), version):
            if wanted in line and (found := INDEX.search(line)):
                self.acknowledged[int(found[1])].set()

    def watch_workloads(self, version: str) -> None:
        """Begin with each Workload once it has quota."""
        seen: set[int] = set()
        for line in self._watch(path_of(WORKLOADS, self.copies.namespace), version):
            if b'"admission":{' in line and (found := INDEX.search(line)) and int(found[1]) not in seen:
                seen.add(int(found[1]))
                self.work.put(int(found[1]))

    def _watch(self, path: str, version: str) -> Iterator[bytes]:
        return self.wire.lines(f"{path}?watch=true&resourceVersion={version}&timeoutSeconds=3600")

    def admit(self) -> None:
        """Take one job after the other."""
        while True:
            index = self.work.get()
            while not self._admit(index):
                self.conflicts += 1

    def _admit(self, index: int) -> bool:
        wire, copies, name = self.wire, self.copies, job_name(index)
        count = copies.count + 1
        workload = VERSION.search(wire.get(copies.path("Workload", index)))
        trainjob = VERSION.search(wire.get(copies.path("TrainJob", index)))
        assert workload is not None
        assert trainjob is not None
        self._evidence(index, name)
        status, content = wire.call(
            "PUT", copies.path("TrainJob", index), copies.write("TrainJob", index, trainjob[1], count=count)
        )
        if status == 409:
            return False
        assert status == 200, content[:300]
        self.acknowledged[index].wait()
        self._evidence(index, name)
        body = copies.write("Workload", index, workload[1], state="Ready")
        status, content = wire.call("PUT", copies.path("Workload", index, "status"), body)
        assert status in (200, 409), content[:300]
        return status == 200

    def _evidence(self, index: int, name: str) -> None:
        self.wire.get(self.copies.path("JobSet", index))
        self.jobs.list(name)
        self.pods.list(name)


def _end(failed: threading.ExceptHookArgs) -> None:
    """End with whatever thread has failed: a driver that goes on with fewer would be measured as a slow one."""
    sys.__excepthook__(failed.exc_type, failed.exc_value or failed.exc_type(), failed.exc_traceback)
    os._exit(1)


def main() -> None:
    """Read what to do, and do it until standard input ends; each line of it asks what was sent so far."""
    threading.excepthook = _end
    told = json.loads(sys.stdin.readline())
    raw = Raw(Server(**told["server"]), told["namespace"], told["jobs"])
    jobsets = path_of(JOBSETS, raw.copies.namespace)
    threading.Thread(target=raw.watch_jobsets, args=(raw.wire.version(jobsets),), daemon=True).start()
    if told["follow"]:
        workloads = path_of(WORKLOADS, raw.copies.namespace)
        threading.Thread(target=raw.watch_workloads, args=(raw.wire.version(workloads),), daemon=True).start()
    else:
        for index in range(told["jobs"]):
            raw.work.put(index)
    for _ in range(WORKERS):
        threading.Thread(target=raw.admit, daemon=True).start()
    print("ready", flush=True)
    for asked, _ in enumerate(sys.stdin):
        sent = next(raw.wire.calls) - asked  # asking counts, too
        print(json.dumps({"requests": sent, "conflicts": raw.conflicts}), flush=True)


if __name__ == "__main__":
    main()

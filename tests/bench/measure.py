"""What is measured: latency one by one, the rate with a backlog, memory, and what an event costs."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from bench.driven import Controller, Driven, Raw
from bench.players import Observer, Trainer
from bench.site import Filled, Site

APART_SECONDS: Final = 0.12
"""Least time between two samples: after a list the API server asks etcd how far it is at most every 100 ms."""
DRIVERS: Final[tuple[type[Driven], ...]] = (Raw, Controller)

Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Latency:
    """Milliseconds from the quota's being seen to Ready's being seen, by an observer; and of Trainer's part in it."""

    driver: str
    samples: int
    p50: float
    p90: float
    p99: float
    trainer_p50: float


@dataclass(frozen=True)
class Rate:
    """What a backlog's admissions cost; milliseconds of processor time and requests are for one admission."""

    driver: str
    backlog: int
    other_pods: int
    admissions: int
    per_second: float
    own_ms: float
    api_server_ms: float
    etcd_ms: float
    requests: float
    trainer_requests: float
    conflicts: float
    peak_mib: float


@dataclass(frozen=True)
class Memory:
    """The controller's peak with so many Workloads and pods there, all of which it has listed and watches."""

    workloads: int
    pods: int
    peak_mib: float


@dataclass(frozen=True)
class EventCost:
    """Milliseconds of the controller's processor time for one event about a job that waits.

    What it spends meanwhile on looking at those that wait in turn, by the second, is counted apart.
    """

    waiting: int
    events: int
    own_ms: float
    resync_ms_a_second: float


def latency(site: Site, folder: Path, driver: type[Driven], samples: int) -> Latency:
    """Give quota to one Workload after the other, and take the times."""
    filled = site.fill(samples, reserved=False)
    observer, trainer = Observer(filled, site.wire), Trainer(filled, site.wire)
    observer.start()
    trainer.start()
    try:
        with driver(site, folder) as driven:
            driven.start(filled, follow=True)
            for index in range(samples):
                began = time.monotonic()
                _reserve(site, filled, index)
                assert observer.wait_ready(0, 60, index), f"job {index} is not admitted within a minute"
                rest = APART_SECONDS * random.uniform(1.0, 2.0)
                time.sleep(max(began + rest - time.monotonic(), 0.0))
    finally:
        site.empty(filled)
    found = [1000 * (observer.ready[index] - observer.reserved[index]) for index in range(samples)]
    cuts = statistics.quantiles(found, n=100)
    return Latency(driver.name, samples, cuts[49], cuts[89], cuts[98], 1000 * statistics.median(trainer.seconds))


def _reserve(site: Site, filled: Filled, index: int) -> None:
    """Play Kueue: reserve quota."""
    copies = filled.copies
    body = copies.write("Workload", index, filled.versions[index])
    status, content = site.wire.call("PUT", copies.path("Workload", index, "status"), body)
    assert status == 200, content[:300]


def rate(
    site: Site, folder: Path, driver: type[Driven], filled: Filled, other_pods: int, seconds: float, at_most: int
) -> Rate:
    """Start with a backlog of Workloads that have quota, and count from the first Ready on."""
    observer, trainer = Observer(filled, site.wire), Trainer(filled, site.wire)
    observer.start()
    trainer.start()
    wanted = min(len(filled.versions), at_most)
    with driver(site, folder) as driven:
        driven.start(filled, follow=False)
        assert observer.wait_ready(1, 120), "nothing is admitted within two minutes"
        servers, own, sent = site.processor_seconds(), driven.used(), trainer.requests
        began, first = time.monotonic(), len(observer.ready)
        observer.wait_ready(wanted, seconds)
        admissions, took = len(observer.ready) - first, time.monotonic() - began
        used, after = driven.used() - own, site.processor_seconds()
        peak = driven.peak_bytes()
    assert admissions > 0, "nothing is admitted after the first"
    return Rate(
        driver=driver.name,
        backlog=len(filled.versions),
        other_pods=other_pods,
        admissions=admissions,
        per_second=admissions / took,
        own_ms=1000 * used.seconds / admissions,
        api_server_ms=1000 * (after["API server"] - servers["API server"]) / admissions,
        etcd_ms=1000 * (after["etcd"] - servers["etcd"]) / admissions,
        requests=used.requests / admissions,
        trainer_requests=(trainer.requests - sent) / admissions,
        conflicts=used.conflicts / admissions,
        peak_mib=peak / 2**20,
    )


def memory(site: Site, folder: Path, workloads: int, pods: int) -> Memory:
    """Have the controller list and watch that much, with quota for none of the Workloads."""
    filled = site.fill(workloads, reserved=False, other_pods=pods)
    try:
        with Controller(site, folder) as driven:
            driven.start(filled, follow=True)
            for index in range(100):
                _reserve(site, filled, index)
            time.sleep(5)
            return Memory(workloads, pods, driven.peak_bytes() / 2**20)
    finally:
        site.empty(filled)


def event_cost(site: Site, folder: Path, waiting: int, events: int) -> EventCost:
    """Have so many Workloads wait for a pod of theirs, and change some of these pods."""
    filled = site.fill(waiting, reserved=True, own_pods=True)
    copies = filled.copies
    try:
        with Controller(site, folder) as driven:
            driven.start(filled, follow=True)
            _settled(driven, waiting)
            before, began = driven.used(), time.monotonic()
            time.sleep(10)
            resync = (driven.used() - before).seconds / (time.monotonic() - began)
            before, began = driven.used(), time.monotonic()
            for number in range(events):
                index = number % waiting
                path = copies.path("Pod", index)
                body = b'{"metadata":{"annotations":{"n":"%d"}}}' % number
                site.wire.patch(path, body)
                time.sleep(0.02)
            _settled(driven, waiting)
            own = (driven.used() - before).seconds - resync * (time.monotonic() - began)
            return EventCost(waiting, events, 1000 * own / events, 1000 * resync)
    finally:
        site.empty(filled)


def _settled(driven: Controller, waiting: int) -> None:
    """Wait until all wait, and no more is to be looked at than the resync brings."""
    end = time.monotonic() + 120 + waiting
    while time.monotonic() < end:
        if driven.waiting() == (waiting, True):
            return
        time.sleep(0.5)
    raise AssertionError(f"the controller does not come to rest: {driven.waiting()}")

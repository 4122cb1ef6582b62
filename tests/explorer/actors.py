"""The product's operations under way, as values.

A generator cannot be copied. So an operation under way is the list of the replies that it had since its start, and
what it asks next is found by running the shipped generator on that list; each list is run once (`ask`). A reply is
kept as the model's value and rendered as JSON when the generator runs.

Versions: an operation that has read an object notes when that object has changed since (`stale`). A write that was
decided on a stale read is answered with a conflict at once, whatever happens in between: it would be, always.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dispatch_admission.act import Outcome, readmit
from dispatch_admission.checks import is_ours
from dispatch_gates import requests
from dispatch_gates.contract import names
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.errors import OperationError
from dispatch_gates.operations.holding import hold, release
from dispatch_gates.operations.opening import open_job
from dispatch_gates.operations.start import start
from explorer import objects, reads, rules
from explorer.rules import JOB, JOBSET, PODS, TRAINJOB, WORKLOAD
from explorer.values import Job, JobSet, TrainJobPart, Workload, WorkloadPart
from model.objects import NAME, TEAM, admission_check
from model.objects import WORKLOAD as WORKLOAD_NAME

KINDS: Final = {
    names.TRAINJOBS: TRAINJOB,
    names.WORKLOADS: WORKLOAD,
    names.JOBSETS: JOBSET,
    names.JOBS: JOB,
    names.PODS: PODS,
}


def _conflict() -> Exception:
    return requests.ConflictError("the object has been modified", status=409)


ERRORS: Final[dict[str, Callable[[], Exception]]] = {
    "conflict": _conflict,
    "not found": lambda: requests.NotFoundError("not found", status=404),
    "exists": lambda: requests.AlreadyExistsError("already exists", status=409),
    "no answer": lambda: requests.UnreachableError("no answer"),
}


class Reply(NamedTuple):
    """One reply: how it is rendered, the value, and for reads of TrainJob and Workload whether it is outdated."""

    kind: str
    value: Any = None
    stale: bool = False


class Ask(NamedTuple):
    """What an operation asks next. `part`: on which part of the world; `version`: number of the reply it rests on."""

    verb: str
    part: int = -1
    value: Any = None
    version: int = 0


class Running(NamedTuple):
    """An operation under way. `tainted`: a late act, which the assumption rules out, came after it had looked.

    `last`: it ends with the write that it is about to send, whatever the answer. All that is then left to know is
    that write and the reply that it rests on, which is the only one kept: many ways lead to the same last write.
    """

    operation: str
    replies: tuple[Reply, ...] = ()
    tainted: bool = False
    last: Last | None = None


class Last(NamedTuple):
    """The write of a Workload's status with which an operation ends, how it then ends, and what it should rest on."""

    value: Workload
    result: str
    broken: str


class Ended(NamedTuple):
    """An operation that is over; `broken`: it ended as the product never should."""

    result: str
    broken: str = ""


@dataclass
class Product:
    """The operations that are explored: the shipped ones, or what a test puts in their place."""

    operations: dict[str, Callable[[], requests.Operation[Any]]]
    kueue: bool = True
    rereads: bool = False
    """Whether a pass may read TrainJob or Workload more than once. The shipped one does not, which is checked."""
    reads: reads.Reads = field(default_factory=reads.of_the_driver)
    foresight: bool = False
    """Whether a pass is as good as cut off once it would only wait even if all that it has yet to read were at its
    best. That more of a previous execution never makes it go on is checked by `short_sighted`."""
    given_up: set[Running] = field(default_factory=set)
    blurred: set[Workload] = field(default_factory=set)
    asked: dict[tuple[str, tuple[Reply, ...]], Ask | Ended] = field(default_factory=dict)

    def ask(self, running: Running) -> Ask | Ended:
        """Return what the operation asks next, from the shipped generator; each list of replies is run once."""
        if running.last is not None:
            if len(running.replies) > 1:
                return Ended(running.last.result)
            return Ask("status", WORKLOAD, running.last.value, 1)
        replies = tuple(reply._replace(stale=False) if reply.stale else reply for reply in running.replies)
        key = (running.operation, replies)
        if key not in self.asked:
            self.asked[key] = self._run(running.operation, replies)
        return self.asked[key]

    def _run(self, operation: str, replies: tuple[Reply, ...]) -> Ask | Ended:
        generator = self.operations[operation]()
        try:
            request = next(generator)
            for version, reply in enumerate(replies, start=1):
                if reply.kind in ERRORS:
                    request = generator.throw(ERRORS[reply.kind]())
                else:
                    request = generator.send(self._rendered(request, reply, version))
            return self._abstract(request, replies)
        except StopIteration as end:
            return Ended(_said(end.value))
        except (requests.ApiError, OperationError) as error:
            return Ended(f"{type(error).__name__}: {error}")
        except objects.ForeignWriteError as error:
            return Ended("", f"S5: somebody else's part of a {error} was changed")
        except AssertionError as error:
            return Ended("", f"an assertion of the product fails: {error}")
        finally:
            generator.close()

    def _rendered(self, request: requests.Request, reply: Reply, version: int) -> Any:
        """Return what the API server answers."""
        value = reply.value
        if isinstance(request, requests.Replace | requests.ReplaceStatus):
            # Stored as it was written: what the model leaves out of its values (texts, for example) is there, too.
            stored = copy.deepcopy(request.body)
            stored["metadata"]["resourceVersion"] = str(version)
            return stored
        if isinstance(request, requests.List):
            return requests.Listing(tuple(self._items(reply.kind, value, version)), str(version))
        if isinstance(request, requests.Watch):
            (body,) = self._items(reply.kind, value, version) or (None,)
            return requests.Changes(((body, False),) if body else (), request.seconds if body else 0.0)
        if reply.kind == "fixed":
            return objects.runtime()
        return next(iter(self._items(reply.kind, value, version)), None)

    def _items(self, kind: str, value: Any, version: int) -> list[JsonObject]:
        if value is None:
            return []
        match kind:
            case "trainjob":
                return [objects.trainjob(value, version, self.kueue)]
            case "workload":
                return [objects.workload(value, version)]
            case "jobset":
                return [objects.jobset(value, version)]
            case "job":
                return [objects.job(value, version)]
        assert kind == "pods", kind
        return [objects.pod(pod, index, version) for index, pod in enumerate(value) if not pod.hidden]

    def _abstract(self, request: requests.Request, replies: tuple[Reply, ...]) -> Ask:
        """Read a request as the model understands it; it must be about this job alone."""
        match request:
            case requests.Get(resource, namespace, name):
                if resource == names.CLUSTER_TRAINING_RUNTIMES:
                    return Ask("fixed")
                expected = WORKLOAD_NAME if resource == names.WORKLOADS else NAME
                assert (namespace, name) == (TEAM, expected), f"a read of something else: {request}"
                return Ask("get", KINDS[resource])
            case requests.List(resource, namespace, selector):
                if (resource, selector) == (names.TRAINJOBS, f"{names.ULID_LABEL}={objects.ASKED.identity.ulid}"):
                    return Ask("fixed")
                of_job = f"{names.JOBSET_NAME}={NAME}", f"{names.JOB_UID}={objects.UID}"
                assert namespace == TEAM, f"a list of something else: {request}"
                assert selector in of_job, f"a list of something else: {request}"
                return Ask("list", KINDS[resource])
            case requests.Watch(resource, namespace, version):
                assert namespace == TEAM, f"a watch of something else: {request}"
                return Ask("watch", KINDS[resource], version=int(version))
            case requests.Create(resource, body):
                assert resource == names.TRAINJOBS, f"a create of something else: {request}"
                return Ask("create", TRAINJOB, objects.read_created(body, self.kueue))
            case requests.Replace(resource, body) | requests.ReplaceStatus(resource, body):
                return self._write(resource, body, replies, status=isinstance(request, requests.ReplaceStatus))
            case requests.Delete(resource, _, name, _, version):
                assert (resource, name) == (names.TRAINJOBS, NAME), f"a delete of something else: {request}"
                return Ask("delete", TRAINJOB, version=int(version))
        assert isinstance(request, requests.Pause), request
        return Ask("pause")

    def _write(self, resource: names.Resource, body: Any, replies: tuple[Reply, ...], *, status: bool) -> Ask:
        version = int(body["metadata"]["resourceVersion"])
        before = replies[version - 1].value
        part = KINDS[resource]
        if part == TRAINJOB:
            after: Any = objects.read_trainjob(body, before, version, self.kueue)
        elif status:
            after = objects.read_workload_status(body, before, version)
        else:
            after = objects.read_workload(body, before, version)
        same = after == before and not (status and body != objects.workload(before, version))
        return Ask("status" if status else "replace", part, "nothing" if same else after, version)


def _said(value: Any) -> str:
    """Return in words how an operation ended."""
    if isinstance(value, Outcome):
        return f"{value.result}: {value.reason}" if value.reason else str(value.result)
    return type(value).__name__


def shipped(*, kueue: bool = True, foresight: bool = False) -> Product:
    """Return the product as it ships."""
    asked = objects.ASKED if kueue else objects.plain()
    found = (admission_check(), admission_check(objects.OTHER_CHECK, "example.org/another"))
    ours = frozenset(str(check["metadata"]["name"]) for check in found if is_ours(check))
    return Product(
        {
            "pass": lambda: readmit(TEAM, WORKLOAD_NAME, ours),
            "Start": lambda: start(asked),
            "Open": lambda: open_job(TEAM, NAME, objects.UID, seconds=0.5),
            "Hold": lambda: hold(TEAM, NAME, objects.UID),
            "Release": lambda: release(TEAM, NAME, objects.UID, seconds=0.5),
        },
        kueue,
        foresight=foresight,
    )


class Actor:
    """One kind of actor: which operations it runs, and its steps on one part of the world."""

    def __init__(self, product: Product, operations: tuple[str, ...], *, losses: int = 0, conflicts: int = 1) -> None:
        self.product = product
        self.conflicts = conflicts
        self.operations = operations
        self.losses = losses

    def parts(self, running: Running | None) -> tuple[int, ...]:
        """Return the parts of the world that its next request may be about."""
        if running is None:
            begun = [self._settled(Running(operation))[0] for operation in self.operations]
            return tuple(sorted({self._asks(found).part for found in begun if found is not None}))
        return (self._asks(running).part,)

    def _asks(self, running: Running) -> Ask:
        asked = self.product.ask(running)
        assert isinstance(asked, Ask), "an operation that has ended is not kept"
        return asked

    def steps(self, running: Running | None, number: int, part: Any) -> Iterator[rules.Outcome]:
        """Yield the steps with one part of the world: the outcome's parts are (operation under way, part)."""
        if running is not None:
            yield from self._steps(running, number, part)
            return
        for operation in self.operations:
            begun, _ = self._settled(Running(operation))
            if begun is not None and self._asks(begun).part == number:
                wanted = 0 if operation == "pass" else rules.FAULT
                for outcome in self._steps(begun, number, part):
                    yield outcome._replace(effects=outcome.effects | wanted)

    def crash(self, running: Running | None) -> Iterator[rules.Outcome]:
        """Crash: at each request, before it is sent or after it was answered."""
        if running is not None:
            yield rules.Outcome(f"crashes in {running.operation}", (None,))

    def noted(self, running: Running | None, effects: int) -> Running | None:
        """Return the operation once somebody else has changed something."""
        if running is None:
            return None
        kinds = set()
        if effects & rules.CHANGED_TRAINJOB:
            kinds.add("trainjob")
        if effects & rules.CHANGED_WORKLOAD:
            kinds.add("workload")
        replies = running.replies
        if kinds:
            replies = tuple(reply._replace(stale=True) if reply.kind in kinds else reply for reply in replies)
        looked = effects & rules.LATE and any(reply.kind == "job" for reply in replies)
        looked = looked or (effects & rules.LATE and running.last is not None)
        if running.operation == "pass" and running.last is None and len(_raises(running)) < 2:
            looked = False  # it has yet to raise A, and to look again after that
        return self._settled(running._replace(replies=replies, tainted=running.tainted or bool(looked)))[0]

    def _settled(self, running: Running) -> tuple[Running | None, str]:
        """Go on over what needs nothing of the world; None where the operation has ended, or can do nothing more.

        Beside it: what it broke in ending.
        """
        while True:
            running = self._blurred(running)
            asked = self.product.ask(running)
            if isinstance(asked, Ended):
                return None, asked.broken
            if asked.verb == "fixed":  # what nobody in the model changes: the runtime, other submissions
                running = self._after(running, Reply("fixed"))
            elif asked.verb == "pause":
                running = self._after(running, Reply("done"))
            elif asked.verb in ("replace", "status", "delete") and running.replies[asked.version - 1].stale:
                if running.last is not None:
                    return None, ""
                met = sum(reply.kind == "conflict" for reply in running.replies)
                if running.operation != "pass" and met >= self.conflicts:
                    # As if it had been cut off, and asked for again: at every conflict it reads anew.
                    running = Running(running.operation)
                else:
                    running = self._after(running, Reply("conflict"))
            else:
                return (None if self._powerless(running, asked) else self._shortened(running, asked)), ""

    def _shortened(self, running: Running, asked: Ask) -> Running:
        """Forget what led to a last write."""
        if (
            running.operation != "pass"
            or asked.verb != "status"
            or running.last is not None
            or asked.value == "nothing"
        ):
            return running
        ends = [
            self.product.ask(self._after(running, reply))
            for reply in (Reply("workload", asked.value), Reply("conflict"))
        ]
        if any(not isinstance(end, Ended) or end.broken for end in ends):
            return running
        assert isinstance(ends[0], Ended)
        base = running.replies[asked.version - 1]
        return Running("pass", (base,), running.tainted, Last(asked.value, ends[0].result, _unfounded(running, asked)))

    def _powerless(self, running: Running, asked: Ask) -> bool:
        """Whether all that is left for a pass to write is a conflict, or why it waits. It is then as good as cut off.

        Reads change nothing. Why it waits changes the Workload's version alone; another pass that meets a conflict
        because of that could have been cut off at the same moment instead, and passes are cut off at any moment.
        """
        if running.operation != "pass" or self.product.rereads:
            return False
        if asked.verb == "status" and running.replies[asked.version - 1].value == asked.value:
            return True
        if running.last is not None:
            return False
        if self.product.foresight and asked.verb in ("get", "list") and self._hopeless(running):
            self.product.given_up.add(running)
            return True
        kinds = [reply.kind for reply in running.replies]
        assert kinds.count("workload") <= 1, "a pass reads its Workload once"
        jobs = [reply for reply in running.replies if reply.kind == "trainjob"]
        assert len(jobs) <= 2, "a pass reads the TrainJob once, and writes it once"
        if len(jobs) == 1:
            return jobs[0].stale
        return len(jobs) == 2 and any(reply.stale for reply in running.replies if reply.kind == "workload")

    def _blurred(self, running: Running) -> Running:
        """Forget what an outdated Workload said: the pass has gone on over it, and can write nothing to it any more."""
        first = running.replies[0] if running.replies else None
        if first is None or first.kind != "workload" or not first.stale or first.value == _TURN:
            return running
        if running.operation != "pass" or running.last is not None or not self.product.foresight:
            return running
        blurred = running._replace(replies=(first._replace(value=_TURN), *running.replies[1:]))
        if _kind(self.product.ask(blurred)) != _kind(self.product.ask(running)):
            return running
        self.product.blurred.add(first.value)
        return blurred

    def _hopeless(self, running: Running) -> bool:
        """Whether a pass only waits, even if it reads next that the previous execution is over, and how."""
        job = _last(running, "trainjob")
        if job is None:
            return False
        best = {JOBSET: JobSet(True, job.rank), JOB: Job(True, 0, seen=True), PODS: ()}
        while True:
            asked = self.product.ask(running)
            if isinstance(asked, Ended):
                return not asked.broken
            if asked.verb not in ("get", "list"):
                return asked.verb == "status" and running.replies[asked.version - 1].value == asked.value
            running = self._after(running, Reply(_REPLIES[asked.part], best[asked.part]))

    def short_sighted(self, met: Callable[[int], Iterable[Any]]) -> list[Running]:
        """Return where `foresight` was wrong.

        Where a pass was given up, a reply that was met, by part of the world, would have made it go on; or what an
        outdated Workload said would have made a difference to what it asks next.
        """
        wrong = []
        for running in self.product.given_up:
            asked = self._asks(running)
            for value in met(asked.part):
                if asked.part == JOBSET and value is None:
                    reply = Reply("not found")
                else:
                    reply = Reply(_REPLIES[asked.part], value)
                going = self._after(running, reply)
                after = self.product.ask(going)
                if isinstance(after, Ended):
                    continue
                if after.verb in ("get", "list"):
                    hopeless = self._hopeless(going)
                else:
                    hopeless = after.verb == "status" and going.replies[after.version - 1].value == after.value
                if not hopeless:
                    wrong.append(going)
        return wrong + self._blurred_wrongly()

    def _blurred_wrongly(self) -> list[Running]:
        """Return where the content of an outdated Workload would have made a difference to what is asked next."""
        wrong = []
        for running in {Running(operation, replies) for operation, replies in self.product.asked}:
            if running.operation == "pass" and running.replies and running.replies[0].value == _TURN:
                expected = _kind(self.product.ask(running))
                for value in self.product.blurred:
                    sharp = running._replace(replies=(Reply("workload", value), *running.replies[1:]))
                    if _kind(self.product.ask(sharp)) != expected:
                        wrong.append(sharp)
        return wrong

    def _after(self, running: Running, reply: Reply) -> Running:
        tainted = running.tainted and reply.kind != "job"
        return running._replace(replies=(*running.replies, reply), tainted=tainted)

    def _steps(self, running: Running, number: int, part: Any) -> Iterator[rules.Outcome]:
        asked = self._asks(running)
        if asked.verb in ("get", "list"):
            yield self._read(running, asked, part)
            yield from self._read_badly(running, asked, part)
        elif asked.verb == "watch":
            yield from self._watched(running, asked, part)
        else:
            yield from self._written(running, asked, number, part)

    def _go(
        self, label: str, running: Running, reply: Reply, part: Any, effects: int = 0, broken: str = ""
    ) -> rules.Outcome:
        after = self._after(running, reply)
        asked = self.product.ask(after)
        ended = f" [{running.operation} ends: {asked.result}]" if isinstance(asked, Ended) else ""
        going, wrong = self._settled(after)
        if going is None and not ended:
            ended = f" [{running.operation} can now only say why it waits, or meet a conflict]"
        return rules.Outcome(label + ended, (going, part), effects, broken or wrong)

    def _read(self, running: Running, asked: Ask, part: Any) -> rules.Outcome:
        label = f"{running.operation} reads the {_NAMES[asked.part]}"
        value = part[0]
        kind = _REPLIES[asked.part]
        if asked.part in (JOB, PODS):
            return self._go(label, running, Reply(kind, value), part)
        if value is None:
            missing = Reply(kind) if asked.verb == "list" else Reply("not found")
            return self._go(f"{label}: there is none", running, missing, part)
        return self._go(label, running, Reply(kind, value), part)

    def _read_badly(self, running: Running, asked: Ask, part: Any) -> Iterator[rules.Outcome]:
        """Answer a read with less than there is, or with what was there before, where the driver lets that be."""
        driver, value = self.product.reads, part[0]
        label = f"{running.operation} reads the {_NAMES[asked.part]}"
        empty = Reply(_REPLIES[asked.part], () if asked.part == PODS else None)
        if asked.verb == "list" and asked.part in (JOB, PODS) and value:
            if not driver.all_pages:
                yield self._go(f"{label}: the first page, which is empty", running, empty, part)
            if driver.old_lists:
                yield self._go(f"{label}: from a cache that shows none yet", running, empty, part)
        if driver.old_objects and asked.part == JOBSET and value is not None and not value.suspend:
            before = Reply("jobset", value._replace(suspend=True))
            yield self._go(f"{label}: from a cache that shows it suspended, as it was", running, before, part)

    def _watched(self, running: Running, asked: Ask, part: Any) -> Iterator[rules.Outcome]:
        """Answer a watch: with what is there now, where that ends the waiting; or its time is up."""
        name = _NAMES[asked.part]
        yield self._go(f"{running.operation} has waited long enough for the {name}", running, Reply("time is up"), part)
        value = part[0]
        seen = running.replies[asked.version - 1]
        if value is None or value == seen.value:
            return
        event = self._go(
            f"{running.operation} sees the {name} change", running, Reply(_REPLIES[asked.part], value), part
        )
        after = event.after[0]
        # What does not end the waiting is left out: it waits on, as if it had seen nothing.
        if after is None or self._asks(after).verb != "watch":
            yield event

    def _written(self, running: Running, asked: Ask, number: int, part: Any) -> Iterator[rules.Outcome]:
        operation = running.operation
        if asked.value == "nothing":
            yield rules.Outcome(
                f"{operation} writes the {_NAMES[number]} without a change",
                (None, part),
                0,
                "S6: a write without a change",
            )
            return
        stored: tuple[str, Any, int, Reply, str]
        if number == TRAINJOB:
            stored = self._on_trainjob(operation, asked, part, running.tainted)
        else:
            stored = self._on_workload(operation, asked, part, running.tainted)
        label, after, effects, reply, broken = stored
        if operation == "pass":
            broken = broken or (_misplaced(running, part.job) if number == TRAINJOB else _unfounded(running, asked))
        written = running._replace(
            replies=tuple(
                found._replace(stale=True) if found.kind == _REPLIES[number] and effects else found
                for found in running.replies
            )
        )
        yield self._go(label, written, reply, after, effects, broken)
        lost = sum(found.kind == "no answer" for found in running.replies)
        if operation != "pass" and lost < self.losses:
            yield self._go(f"{label}, and the reply is lost", written, Reply("no answer"), after, effects, broken)
            yield self._go(f"{label}: lost on the way", running, Reply("no answer"), part)

    def _on_trainjob(
        self, operation: str, asked: Ask, part: TrainJobPart, tainted: bool
    ) -> tuple[str, TrainJobPart, int, Reply, str]:
        before = part.job
        if asked.verb == "create":
            if before is not None:
                return f"{operation} creates the TrainJob: it exists", part, 0, Reply("exists"), ""
            return (
                f"{operation} creates the TrainJob",
                part.put(asked.value),
                rules.CHANGED_TRAINJOB,
                Reply("trainjob", asked.value),
                "",
            )
        assert before is not None, "a write to a TrainJob that is gone is stale"
        if asked.verb == "delete":
            after = before._replace(deleting=True)
            return f"{operation} deletes the TrainJob", part.put(after), rules.CHANGED_TRAINJOB, Reply("done"), ""
        after = asked.value
        what = [
            name
            for name in ("suspend", "rank", "gate", "held", "opened")
            if getattr(after, name) != getattr(before, name)
        ]
        label = f"{operation} writes the TrainJob: " + ", ".join(
            f"A={after.rank}" if name == "rank" else f"{name} {getattr(after, name)}" for name in what
        )
        broken = "S3: A was lowered" if after.rank < before.rank else ""
        effects = rules.CHANGED_TRAINJOB
        if before.suspend and not after.suspend:
            effects |= rules.READY | (rules.LATE if tainted else 0)
        return label, part.put(after), effects, Reply("trainjob", after), broken

    def _on_workload(
        self, operation: str, asked: Ask, part: WorkloadPart, tainted: bool
    ) -> tuple[str, WorkloadPart, int, Reply, str]:
        before, after = part.workload, asked.value
        assert before is not None, "a write to a Workload that is gone is stale"
        effects = rules.CHANGED_WORKLOAD
        reply = Reply("workload", after)
        if asked.verb == "replace":
            return f"{operation} sets active {after.active}", part._replace(workload=after), effects, reply, ""
        broken = ""
        if after.check == "Ready":
            broken = _too_early(before)
            effects |= rules.READY | (rules.LATE if tainted else 0)
        label = (
            f"{operation} sets the check {after.check}"
            if after.check != before.check
            else f"{operation} says why it waits"
        )
        return label, part._replace(workload=after), effects, reply, broken


_TURN: Final = Workload(reserved=True, check="Pending")


def _kind(asked: Ask | Ended) -> tuple[str, int]:
    """Return what is asked, without the content."""
    return (asked.verb, asked.part) if isinstance(asked, Ask) else (asked.broken, -1)


def _misplaced(running: Running, job: Any) -> str:
    """R, on the version of the TrainJob over which A is raised, and on the JobSet as the pass has seen it."""
    wrong = {
        "is being deleted": job.deleting,
        "has ended": job.ended,
        "is gated": job.gate,
        "is held": job.held,
        "is not suspended": not job.suspend,
        "is another one of the name": job.other,
    }
    found = next((f"R: A is raised where the TrainJob {why}" for why, is_so in wrong.items() if is_so), "")
    jobset = _last(running, "jobset")
    if not found and (jobset is None or not jobset.suspend):
        found = "R: A is raised where the JobSet is not suspended"
    if not found and jobset.rank != job.rank:
        found = "R: A is raised where the JobSet does not carry the one before"
    return found


def _unfounded(running: Running, asked: Ask) -> str:
    """S2 and S3, on what a pass that sets Ready has seen, and when."""
    if asked.value.check != "Ready":
        return ""
    if running.last is not None:
        return running.last.broken
    job, jobset, jobs = _last(running, "trainjob"), _last(running, "jobset"), _raises(running)
    if len(jobs) < 2:
        return "S3: Ready without a raise of A"
    if asked.version > jobs[-1]:
        return "S3: Ready on a version of the Workload that was read after A was raised"
    if jobset is None or not jobset.suspend or jobset.rank != job.rank:
        return "S2: Ready although the JobSet was not seen to carry the A that was raised"
    return ""


def _raises(running: Running) -> list[int]:
    """Return which replies were the TrainJob: as it was read and, from the second on, as A was raised in it."""
    return [number for number, reply in enumerate(running.replies, 1) if reply.kind == "trainjob"]


def _last(running: Running, kind: str) -> Any:
    """Return the last value of a kind that an operation has seen."""
    return next((reply.value for reply in reversed(running.replies) if reply.kind == kind), None)


def _too_early(found: Any) -> str:
    """S1, on the version of the Workload over which Ready is written."""
    wrong = {
        "without reserved quota": not found.reserved,
        "while Evicted": found.evicted,
        "while Admitted": found.admitted is True,
        "on a finished Workload": found.finished,
        "on a Workload that is being deleted": found.deleting,
        "on an inactive Workload": not found.active,
        f"from {found.check or 'nothing'}": found.check != "Pending",
    }
    return next((f"S1: Ready {why}" for why, is_so in wrong.items() if is_so), "")


_NAMES: Final = ("TrainJob", "Workload", "JobSet", "Jobs", "pods")
_REPLIES: Final = ("trainjob", "workload", "jobset", "job", "pods")

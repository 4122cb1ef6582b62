"""What may be asked of a gated job and its opening, and what has changed. Pure but for one environment variable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dispatch_gates.operations.status import JobState
from dispatch_gates.printable import is_path
from dispatch_gates.resources._inputs import ASKED, Failure, Props, job_spec, known, name_of, whole
from dispatch_gates.resources._running import records_problem
from dispatch_gates.resources.job_inputs import DEFAULTS

IDENTITY: Final = ("ulid", "submission", "namespace")
"""Inputs whose change is another TrainJob."""
_TIMEOUTS: Final = ("workload_timeout_seconds", "release_timeout_seconds", "delete_timeout_seconds")
_SETTINGS: Final = (
    "opened",
    "hold",
    "check",
    "kubeconfig",
    "context",
    *_TIMEOUTS,
)
"""Inputs that may change at any time. `owner` is neither: it is what was written at the start."""

_STRICT: Final = "strict_executions"
_WHERE: Final = ("queue", "check", "kubeconfig", "context", "workload_timeout_seconds")


def failures(olds: Props, news: Props) -> list[Failure]:
    """Return what is wrong with the inputs of a gated job; `olds` is empty where it will be created."""
    asked, found = job_spec(news)
    found += _setting_failures(news)
    found += _opened_failures(olds, news)
    if olds and "submission" not in dict(found):  # one that is wrong cannot be compared
        found += _frozen_failures(olds, news)
    if asked is not None and asked.queue is None and asked.priority_class is not None:
        found.append(("priority_class", "is Kueue's: it takes a `queue` too"))
    if problem := records_problem():
        found.append(("opened", problem))
    return found


def difference(olds: Props, news: Props) -> tuple[bool, list[str]]:
    """Compare what was last done (outputs) with what is asked for: whether anything changes, and what replaces.

    An identity that is still unknown counts as another one: a preview must not hide that a job will be deleted.
    """
    changed = [key for key in (*IDENTITY, *ASKED, _STRICT, *_SETTINGS) if _differs(olds, news, key)]
    unfinished = news.get("opened") is True and olds.get("is_open") is False
    # Somebody else held or released the job, and a refresh saw it. What has ended runs no more, held or not.
    if isinstance(news.get("hold"), bool) and olds.get("state") not in (JobState.COMPLETE, JobState.FAILED):
        unfinished = unfinished or news["hold"] is not olds.get("held")
    same = "ulid" not in changed and "submission" not in changed
    # The specification of a started job goes with its submission; alone it is refused by check().
    return bool(changed) or unfinished, [] if same else changed


def opening_failures(olds: Props, news: Props) -> list[Failure]:
    """Return what is wrong with an opening; `olds` is empty where it will be made for the first time."""
    found: list[Failure] = []
    same = olds and not any(_differs(olds, news, key) for key in IDENTITY)
    if why := _another_job(news) or (_opened_before(olds.get("uid"), news) if same else None):
        found.append(("submission", why))
    if problem := records_problem():
        found.append(("uid", problem))
    return found


def _opened_before(uid: str | None, news: Props) -> str | None:
    """Say why a submission that was opened as the TrainJob of this UID, if it was, is not opened as another one."""
    if uid is None or not known(news.get("uid")) or uid == news.get("uid"):
        return None
    return (
        f"submission {whole(news['submission'])} was opened already, as the TrainJob of uid {uid}, "
        "which is gone. Its executions must not be repeated: raise `submission`."
    )


def opening_difference(olds: Props, news: Props) -> tuple[bool, list[str]]:
    """Compare an opening with what is asked for.

    The UID is unknown in the preview of any change to the job, also of one that keeps it: it replaces nothing
    by itself.
    """
    replaces = [key for key in IDENTITY if _differs(olds, news, key)]
    others = [key for key in ("uid", "name", "cluster", *_WHERE) if _differs(olds, news, key)]
    return bool(replaces or others), replaces


def sweep_failures(before: Mapping[str, str | None], news: Props) -> list[Failure]:
    """Return what is wrong with the opening of a sweep. `before` is what was opened: UIDs by where the job is."""
    found: list[Failure] = []
    seen: set[str] = set()
    for job in _listed(news):
        where = where_of(job)
        if where is None:
            continue
        if where in seen:
            found.append(("jobs", f"{where} is there twice"))
        seen.add(where)
        if why := _another_job(job) or _opened_before(before.get(where), job):
            found.append(("jobs", f"{where}: {why}"))
    if problem := records_problem():
        found.append(("jobs", problem))
    return found


def sweep_difference(olds: Props, news: Props) -> bool:
    """Compare the opening of a sweep with what is asked for. The order of its jobs makes no difference."""
    before, after = swept(olds), swept(news)
    return (
        not known(news.get("jobs"))
        or before.keys() != after.keys()
        or any(opening_difference(before[where], job)[0] for where, job in after.items())
    )


def swept(props: Props) -> dict[str, Props]:
    """Return the jobs of a sweep by where they are, as far as that is known."""
    return {where: job for job in _listed(props) if (where := where_of(job)) is not None}


def where_of(job: Props) -> str | None:
    """Return which TrainJob an opening is about, as `namespace/name`; None while that is unknown."""
    if not known([job.get(key) for key in IDENTITY]):
        return None
    return f"{job['namespace']}/{name_of(job)}"


def _listed(props: Props) -> list[Props]:
    """Return the jobs of a sweep; none while the list itself is unknown."""
    jobs = props.get("jobs")
    return [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []


def _another_job(news: Props) -> str | None:
    """Say why an opening is not about the job that it was given."""
    if where_of(news) is None or not known(news.get("name")) or news["name"] == name_of(news):
        return None
    return f"its job is {news['name']} as yet, and was left out of this run: leave it in (`--target`)"


def _differs(olds: Props, news: Props, key: str) -> bool:
    # A state of an earlier release lacks the inputs that came later: what was not said was the default.
    default = DEFAULTS.get(key)
    old, new = olds.get(key, default), news.get(key, default)
    return not known(new) or whole(old) != whole(new)


def _setting_failures(news: Props) -> Iterator[Failure]:
    for name in _TIMEOUTS:
        value = news.get(name, 1.0)
        if known(value) and not _positive(value):
            yield name, f"{value!r}: a number of seconds above 0 was expected"
    for name in ("check", "context"):
        value = news.get(name, "-")
        if known(value) and not (isinstance(value, str) and value and "\n" not in value):
            yield name, "a text in one line was expected"
    value = news.get("kubeconfig", "-")
    if known(value) and not (isinstance(value, str) and is_path(value)):
        # The value is not shown: it may be a kubeconfig itself, with its credentials.
        yield "kubeconfig", "the path of a kubeconfig was expected, never its content"
    for name in ("opened", "hold", _STRICT):
        if known(news.get(name)) and not isinstance(news.get(name), bool | None):
            yield name, "True, False or nothing was expected"


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _opened_failures(olds: Props, news: Props) -> Iterator[Failure]:
    if news.get("opened") is True and not olds:
        yield (
            "opened",
            "True is only for a job that is recorded already: run `pulumi up` with it left out first, or use a "
            "JobOpening (or GatedJob), which opens in the same run. A job that ran before and is gone takes the next "
            "`submission`",
        )
    if news.get("opened") is False and olds.get("opened") is True and _same_job(olds, news):
        yield "opened", "an opened job cannot be closed again; put it back to True, or raise `submission`"


def _frozen_failures(olds: Props, news: Props) -> Iterator[Failure]:
    """Refuse another specification for a started job, and a submission lower than before."""
    if not _differs(olds, news, "ulid") and known(news["submission"]) and news["submission"] < olds["submission"]:
        was = whole(olds["submission"])
        yield "submission", f"{whole(news['submission'])} is lower than {was}: it only goes up"
        return
    if not _same_job(olds, news):
        return
    if known(news.get(_STRICT)) and _differs(olds, news, _STRICT):
        yield _STRICT, "is settled when a job is started: put it back, or raise `submission` to start anew"
    changed = [key for key in ASKED if known(news.get(key)) and _differs(olds, news, key)]
    if not changed:
        return
    before, after = job_spec(olds)[0], job_spec(news)[0]
    if before is not None and after is not None and before.digest() == after.digest():
        return  # said in another way, the same job
    for key in changed:
        yield key, "a started job's specification cannot change: put it back, or raise `submission` to start anew"


def _same_job(olds: Props, news: Props) -> bool:
    return not _differs(olds, news, "ulid") and not _differs(olds, news, "submission")

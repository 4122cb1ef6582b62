"""The driver over real sockets: a local HTTP server answers, nothing of the client is replaced.

Aspects: paging (BL-26) and consistent reads (BL-27); each answer's error; bodies that are none; what is repeated and
what never is; credentials that expire; paths and bodies of each request; watches; proxies and netrc; configuration.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dispatch_gates.cluster import ClusterConfigError, Connection, Driver, Target, run
from dispatch_gates.contract.names import JOBSETS, LEASES, NAMESPACES, PODS, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.jobs import cluster_identity
from dispatch_gates.requests import (
    AlreadyExistsError,
    ApiError,
    BadReplyError,
    ConflictError,
    Create,
    Delete,
    DeniedError,
    ExpiredError,
    Get,
    InvalidError,
    List,
    NotFoundError,
    NotServedError,
    Pause,
    Replace,
    ReplaceStatus,
    Request,
    ThrottledError,
    UnreachableError,
    Watch,
)
from model import objects
from model.apiserver import ApiServer
from model.http import Front, Served, failure, reply, served, write_kubeconfig
from model.objects import NAME, TEAM
from unit import driver_checks
from unit.checks import Check
from unit.driver_checks import asking

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

READ = Get(TRAINJOBS, TEAM, NAME)
VERSIONED: JsonObject = {"metadata": {"name": NAME, "namespace": TEAM, "uid": "u", "resourceVersion": "7"}, "spec": {}}
WRITE = Replace(TRAINJOBS, VERSIONED)
WATCH = Watch(PODS, TEAM, "7", 30.0, selector="a=b")


@pytest.mark.parametrize("check", driver_checks.CHECKS.values(), ids=driver_checks.CHECKS.keys())
def test_reads(check: Check) -> None:
    check()


def answering(*answers: web.Response | Callable[[], web.Response]) -> Answer:
    """Give these answers, one after the other, and the last one for ever."""
    left = list(answers)

    async def answer(_: web.Request) -> web.StreamResponse:
        found = left.pop(0) if len(left) > 1 else left[0]
        made = found if isinstance(found, web.Response) else found()
        return web.Response(status=made.status, body=made.body, headers=made.headers)

    return answer


def raises(answer: Answer, request: Request, kind: type[ApiError], *, attempts: int = 1) -> tuple[ApiError, int]:
    """Expect this very kind of error; return it, and how many requests it took."""
    return each_raises(answer, [request], kind, attempts=attempts)[0]


def each_raises(
    answer: Answer, requests: list[Request], kind: type[ApiError], *, attempts: int = 1
) -> list[tuple[ApiError, int]]:
    """Expect this very kind of error of each request, over one connection."""
    found: list[tuple[ApiError, int]] = []

    async def talk(connected: Served) -> None:
        for request in requests:
            before = len(connected.seen)
            with pytest.raises(ApiError) as caught:
                await connected.driver.perform(request)
            assert type(caught.value) is kind, (request, caught.value)
            found.append((caught.value, len(connected.seen) - before))

    asking(answer, talk, attempts=attempts)
    return found


def returns(answer: Answer, request: Request, *, attempts: int = 1) -> tuple[Any, list[Any]]:
    """Return the reply, and the requests that it took."""
    found: list[tuple[Any, list[Any]]] = []

    async def talk(connected: Served) -> None:
        found.append((await connected.driver.perform(request), connected.seen))

    asking(answer, talk, attempts=attempts)
    return found[0]


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", InvalidError),
        (403, "Forbidden", DeniedError),
        (404, "NotFound", NotFoundError),
        (409, "Conflict", ConflictError),
        (409, "AlreadyExists", AlreadyExistsError),
        (422, "Invalid", InvalidError),
        (429, "TooManyRequests", ThrottledError),
        (500, "InternalError", UnreachableError),
        (503, "ServiceUnavailable", UnreachableError),
        (504, "Timeout", UnreachableError),
        (418, "Teapot", UnreachableError),
    ],
)
def test_status(status: int, reason: str, kind: type[ApiError]) -> None:
    for error, asked in each_raises(answering(failure(status, reason)), [READ, WRITE, List(PODS, TEAM), WATCH], kind):
        assert (error.status, asked) == (status, 1)
        assert f"{status} said the API server" in str(error)


@pytest.mark.parametrize(
    "said",
    [
        b"404 page not found\n",
        b"<html>no such page</html>",
        b'{"kind": "Status", "reason": "NotFound", "message": "the server could not find the requested resource"}',
        b"",
    ],
)
def test_what_is_not_said_of_an_object_is_no_absence(said: bytes) -> None:
    """A kind that is not served, an API server that has only begun to start, a proxy."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=404, body=said)

    for error, asked in each_raises(answer, [READ, WRITE, List(PODS, TEAM), WATCH], NotServedError):
        assert (error.status, asked) == (404, 1)
        assert "this kind of object is not served there" in str(error)


def test_gone() -> None:
    each_raises(answering(failure(410, "Expired")), [READ, WRITE, WATCH], ExpiredError)


def test_html_of_a_proxy_in_between() -> None:
    page = web.Response(status=502, body=b"<html>Bad Gateway \xff" + b"x" * 5000, content_type="text/html")
    error, _ = raises(answering(page), READ, UnreachableError)
    assert "502 <html>Bad Gateway" in str(error)
    assert len(str(error)) < 400


def test_an_error_without_a_body() -> None:
    error, _ = raises(answering(web.Response(status=403)), READ, DeniedError)
    assert "403 without a body" in str(error)


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None), ("", None)]
)
def test_retry_after(header: str, seconds: float | None) -> None:
    busy = web.Response(status=429, headers={"Retry-After": header})
    error, _ = raises(answering(busy), READ, ThrottledError)
    assert error.retry_after == seconds


@pytest.mark.parametrize("body", [b"<html>hello</html>", b'{"metadata": {"na', b"", b"[]", b"7", b"\xff\xfe"], ids=repr)
def test_a_body_that_is_no_object(body: bytes) -> None:
    each_raises(answering(reply(body)), [READ, WRITE, List(PODS, TEAM)], BadReplyError)


def test_a_list_without_items() -> None:
    raises(answering(reply({"kind": "PodList", "items": None})), List(PODS, TEAM), BadReplyError)


async def _hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def _cut_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"metadata": ')
    return await _hang_up(request)


@pytest.mark.parametrize("answer", [_hang_up, _cut_off], ids=["no answer", "cut off"])
def test_a_lost_connection(answer: Answer) -> None:
    # Where no answer begins, the HTTP library sends once more what HTTP calls idempotent. For a PUT that is only so
    # by the version in it: the API server refuses the second one where the first was applied.
    for _, asked in each_raises(answer, [READ, WRITE, List(PODS, TEAM)], UnreachableError):
        assert asked in ((1, 2) if answer is _hang_up else (1,))


def test_nobody_listens() -> None:
    async def main() -> None:
        async with served(answering(reply({}))) as found:
            write_kubeconfig(found.kubeconfig, "http://127.0.0.1:1")
            connection = await Connection.open(Target(str(found.kubeconfig)))
            try:
                with pytest.raises(UnreachableError, match=r"no answer from http://127\.0\.0\.1:1"):
                    await Driver(connection, attempts=1).perform(READ)
            finally:
                await connection.close()

    asyncio.run(main())


def test_a_slow_answer_is_no_answer() -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1)
        return reply({})

    async def talk(found: Served) -> None:
        with pytest.raises(UnreachableError, match=r"time-out|Timeout"):
            await found.connection.call("GET", "/api/v1/pods", seconds=0.1)

    asking(answer, talk)


# What is repeated, and what never is.


@pytest.mark.parametrize(
    "first",
    [failure(500, ""), failure(503, ""), failure(429, "")],
    ids=["500", "503", "429"],
)
def test_a_read_is_repeated(first: web.Response) -> None:
    found, seen = returns(answering(first, reply({"kind": "TrainJob"})), READ, attempts=3)
    assert found == {"kind": "TrainJob"}
    assert len(seen) == 2


@pytest.mark.parametrize(
    "first",
    [failure(400, ""), failure(403, ""), failure(404, ""), failure(409, ""), failure(422, ""), reply(b"no")],
    ids=["400", "403", "404", "409", "422", "no JSON"],
)
def test_an_answer_is_not_asked_for_again(first: web.Response) -> None:
    kinds = {400: InvalidError, 403: DeniedError, 404: NotFoundError, 409: ConflictError, 422: InvalidError}
    _, asked = raises(answering(first, reply({})), READ, kinds.get(first.status, BadReplyError), attempts=3)
    assert asked == 1


@pytest.mark.parametrize(
    ("write", "answer"),
    [
        (WRITE, answering(failure(500, ""), reply({}))),
        (ReplaceStatus(TRAINJOBS, VERSIONED), answering(failure(503, ""), reply({}))),
        (Create(TRAINJOBS, VERSIONED), answering(failure(500, ""), reply({}))),
        (Create(TRAINJOBS, VERSIONED), _hang_up),
        (WRITE, _cut_off),
    ],
    ids=["replace: 500", "replace status: 503", "create: 500", "create: no answer", "replace: cut off"],
)
def test_a_write_that_may_have_been_applied_is_never_repeated(write: Request, answer: Answer) -> None:
    _, asked = raises(answer, write, UnreachableError, attempts=3)
    assert asked == 1


def test_a_throttled_write_was_not_applied_and_is_repeated_after_the_time_asked_for() -> None:
    busy = web.Response(status=429, headers={"Retry-After": "1"})

    async def talk(found: Served) -> None:
        began = asyncio.get_running_loop().time()
        await found.driver.perform(WRITE)
        assert asyncio.get_running_loop().time() - began >= 1
        assert [seen.body for seen in found.seen] == [VERSIONED, VERSIONED]

    asking(answering(busy, reply({})), talk, attempts=3)


def test_a_read_gives_up_in_the_end() -> None:
    _, asked = raises(answering(failure(500, "")), READ, UnreachableError, attempts=3)
    assert asked == 3


# Credentials.


def _only(token: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        good = request.headers.get("Authorization") == f"Bearer {token}"
        return reply({"kind": "TrainJob"}) if good else failure(401, "Unauthorized")

    return answer


def test_credentials_are_loaded_anew_once() -> None:
    async def talk(found: Served) -> None:
        write_kubeconfig(found.kubeconfig, found.host, token="second")
        assert await found.driver.perform(WRITE) == {"kind": "TrainJob"}
        assert [seen.headers["Authorization"] for seen in found.seen] == ["Bearer first", "Bearer second"]
        await found.driver.perform(READ)
        assert len(found.seen) == 3

    asking(_only("second"), talk)


def test_credentials_that_stay_refused() -> None:
    error, asked = raises(_only("never"), READ, DeniedError)
    assert (error.status, asked) == (401, 2)


def test_credentials_that_cannot_be_loaded() -> None:
    async def talk(found: Served) -> None:
        found.kubeconfig.unlink()
        with pytest.raises(DeniedError, match="credentials expired") as caught:
            await found.driver.perform(READ)
        assert caught.value.status == 401

    asking(_only("never"), talk)


def test_credentials_expire_under_many_requests_at_once() -> None:
    """Loading them anew for one request must not break the others."""

    async def talk(found: Served) -> None:
        write_kubeconfig(found.kubeconfig, found.host, token="second")
        replies = await asyncio.gather(
            *(found.driver.perform(Get(TRAINJOBS, TEAM, f"job-{number}")) for number in range(60)),
            return_exceptions=True,
        )
        assert [found for found in replies if found != {"kind": "TrainJob"}] == []

    asking(_only("second"), talk)


def test_a_watch_outlives_the_loading_of_credentials_by_another_request() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return await _only("second")(request)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"\n")
        begun.set()
        await release.wait()
        await response.write(_line("ADDED", "late"))
        return response

    async def talk(found: Served) -> None:
        watching = asyncio.create_task(found.driver.perform(WATCH))
        await begun.wait()
        write_kubeconfig(found.kubeconfig, found.host, token="second")
        await found.driver.perform(READ)
        release.set()
        changes = await watching
        assert [body["metadata"]["name"] for body, _ in changes.events] == ["late"]

    asking(answer, talk)


# What is sent.


@pytest.mark.parametrize(
    ("request_", "method", "path", "query"),
    [
        (Get(NAMESPACES, "", "kube-system"), "GET", "/api/v1/namespaces/kube-system", {}),
        (READ, "GET", f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/{NAME}", {}),
        (
            Get(TRAINJOBS, TEAM, "a/b c"),
            "GET",
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/a/b c",
            {},
        ),
        (List(PODS, "", "a=b,c"), "GET", "/api/v1/pods", {"labelSelector": "a=b,c", "limit": "500"}),
        (WRITE, "PUT", f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/{NAME}", None),
        (
            ReplaceStatus(WORKLOADS, VERSIONED),
            "PUT",
            f"/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/{NAME}/status",
            None,
        ),
        (Create(LEASES, VERSIONED), "POST", "/apis/coordination.k8s.io/v1/namespaces/team/leases", None),
    ],
    ids=["core, cluster", "named", "quoted", "list", "replace", "replace status", "create"],
)
def test_path(request_: Request, method: str, path: str, query: dict[str, str] | None) -> None:
    _, (seen,) = returns(answering(reply({"items": [], "metadata": {"resourceVersion": "1"}})), request_)
    assert (seen.method, seen.path) == (method, path)
    strict = {"fieldValidation": "Strict"} if isinstance(request_, Create) else {}
    assert seen.query == (query if query is not None else {"fieldManager": "dispatch-gates", **strict})
    assert seen.body == (None if query is not None else VERSIONED)
    assert seen.headers["User-Agent"].startswith("dispatch-gates/")
    if query is None:
        assert seen.headers["Content-Type"] == "application/json"


def test_a_name_is_quoted() -> None:
    paths: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        paths.append(request.raw_path)
        return reply({})

    returns(answer, Get(PODS, TEAM, "../x?y=z"))
    assert paths == ["/api/v1/namespaces/team/pods/..%2Fx%3Fy=z"]


def test_a_deletion_carries_its_preconditions() -> None:
    found, (seen,) = returns(answering(reply({"kind": "Status"})), Delete(TRAINJOBS, TEAM, NAME, "u", "7"))
    assert found is None
    assert seen.method == "DELETE"
    assert seen.body["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert seen.body["propagationPolicy"] == "Background"


def test_a_pause_sends_nothing() -> None:
    found, seen = returns(answering(reply({})), Pause(0.01))
    assert (found, seen) == (None, [])


# Watches.


def _line(kind: str, name: str, **more: Any) -> bytes:
    body = {"metadata": {"name": name, "resourceVersion": "8"}, **more}
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


GONE = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}).encode() + b"\n"


def streaming(*chunks: bytes, hang_up: bool = False, linger: float = 0.0) -> Answer:
    """Send these chunks, one at a time, and end the stream."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.01)
        await asyncio.sleep(linger)
        return await _hang_up(request) if hang_up else response

    return answer


def test_watch_asks_for_what_it_says() -> None:
    _, (seen,) = returns(streaming(_line("ADDED", "p")), Watch(JOBSETS, TEAM, "7", 1.2, name=NAME))
    assert seen.path == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets"
    assert seen.query == {
        "watch": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "2",
        "fieldSelector": f"metadata.name={NAME}",
    }


def test_watch_goes_on_until_what_is_wanted() -> None:
    """On one connection. A stream that ends before is a reply all the same."""
    stream = streaming(_line("ADDED", "p"), _line("MODIFIED", "q"), _line("MODIFIED", "r"), linger=5)
    changes, asked = returns(stream, Watch(PODS, TEAM, "7", 300.0, until=lambda body: body["metadata"]["name"] == "q"))
    assert [body["metadata"]["name"] for body, _ in changes.events] == ["p", "q"]
    assert len(asked) == 1
    changes, _ = returns(streaming(_line("ADDED", "p")), Watch(PODS, TEAM, "7", 300.0, until=lambda _: False))
    assert [body["metadata"]["name"] for body, _ in changes.events] == ["p"]


@pytest.mark.parametrize(("kind", "deleted"), [("ADDED", False), ("MODIFIED", False), ("DELETED", True)])
def test_watch_replies_at_the_first_change(kind: str, deleted: bool) -> None:
    changes, _ = returns(streaming(_line(kind, "p"), _line("ADDED", "q"), linger=1), WATCH)
    assert [(body["metadata"]["name"], gone) for body, gone in changes.events] == [("p", deleted)]
    assert 0 < changes.seconds_left < 30


def test_watch_reads_an_event_that_comes_in_pieces() -> None:
    line = _line("ADDED", "p", spec={"text": "x" * 100_000 + "\u00e4"})
    changes, _ = returns(streaming(line[:10], line[10:70_000], line[70_000:]), WATCH)
    assert changes.events[0][0]["spec"]["text"].endswith("\u00e4")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (streaming(GONE), ExpiredError),
        (streaming(b'{"type": "ERROR", "object": {"code": 500}}\n'), UnreachableError),
        (streaming(b'{"type": "ERROR", "object": {}}\n'), UnreachableError),
        (streaming(b'{"type": "ERROR"}\n'), UnreachableError),
        (streaming(b"not JSON\n"), BadReplyError),
        (streaming(b"[]\n"), BadReplyError),
        (streaming(b'{"type": "ADDED"}\n'), BadReplyError),
        (streaming(b'{"type": "CHANGED", "object": {}}\n'), BadReplyError),
        (streaming(b'{"type": "ADD', hang_up=True), UnreachableError),
        (streaming(hang_up=True), UnreachableError),
    ],
    ids=[
        "410",
        "ERROR 500",
        "ERROR without code",
        "ERROR without object",
        "no JSON",
        "no object",
        "event without object",
        "unknown event",
        "broken off in a line",
        "broken off",
    ],
)
def test_watch_fails(answer: Answer, kind: type[ApiError]) -> None:
    raises(answer, WATCH, kind)


@pytest.mark.parametrize("chunks", [(), (b"\n", b"  \n"), (b'{"type": "ADDED", "obj',)], ids=["none", "blank", "cut"])
def test_watch_that_the_server_ends_early(chunks: tuple[bytes, ...]) -> None:
    changes, seen = returns(streaming(*chunks), WATCH)
    assert changes.events == ()
    assert 1 < changes.seconds_left < 30
    assert len(seen) == 1


def test_stream_gives_every_event_and_bookmark() -> None:
    lines = _line("ADDED", "p") + _line("MODIFIED", "p") + _line("BOOKMARK", "") + _line("DELETED", "p")
    names: list[tuple[str, bool]] = []

    async def talk(found: Served) -> None:
        async for body, deleted in found.driver.stream(WATCH, metadata_only=True, bookmarks=True):
            names.append((body["metadata"]["name"], deleted))
        (seen,) = found.seen
        assert seen.query["allowWatchBookmarks"] == "true"
        assert "as=PartialObjectMetadata" in seen.headers["Accept"]

    asking(streaming(lines), talk)
    assert names == [("p", False), ("p", False), ("", False), ("p", True)]


def test_stream_that_goes_silent_beyond_its_time_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """BL-18: a connection that is half open never ends by itself."""
    monkeypatch.setattr("dispatch_gates.cluster.driver._SLACK_SECONDS", 0.1)

    async def talk(found: Served) -> None:
        with pytest.raises(UnreachableError):
            async for _ in found.driver.stream(Watch(PODS, TEAM, "7", 0.1)):
                pass

    asking(streaming(_line("ADDED", "p"), linger=2), talk)


# The client's surroundings.


@asynccontextmanager
async def _connected(kubeconfig: Path) -> AsyncIterator[Driver]:
    connection = await Connection.open(Target(str(kubeconfig)))
    try:
        yield Driver(connection, attempts=1)
    finally:
        await connection.close()


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(found: Served) -> None:
        monkeypatch.setenv("http_proxy", found.host)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        write_kubeconfig(found.kubeconfig, "http://cluster.example:6443")
        async with _connected(found.kubeconfig) as driver:
            await driver.perform(READ)
        assert found.seen[0].headers["Host"] == "cluster.example:6443"

    asking(answering(reply({})), talk)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_proxy_for_what_is_named_and_none_that_comes_later(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """The proxy is looked up once; the client would look at each request, for half a millisecond."""

    async def talk(found: Served) -> None:
        if moment == "before":
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        async with _connected(found.kubeconfig) as driver:
            monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
            await driver.perform(READ)
        assert len(found.seen) == 1

    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    asking(answering(reply({})), talk)


def test_netrc_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    _, (seen,) = returns(answering(reply({})), READ)
    assert seen.headers["Authorization"] == "Bearer first"


@pytest.mark.parametrize(
    ("content", "context", "says"),
    [
        (None, None, "there is no file"),
        ("", None, "kubeconfig"),
        ("{", None, "kubeconfig"),
        ("hello", None, "kubeconfig"),
        ("clusters: 3\nusers: 4\ncontexts: 5\ncurrent-context: x\n", None, "kubeconfig"),
        ("no CA", None, "kubeconfig"),
        ("apiVersion: v1\nkind: Config\n", None, "kubeconfig"),
        ("good", "elsewhere", "context elsewhere"),
    ],
    ids=["no file", "empty", "no YAML", "a word", "wrong shape", "a broken CA", "nothing in it", "no such context"],
)
def test_a_kubeconfig_that_cannot_be_used(tmp_path: Path, content: str | None, context: str | None, says: str) -> None:
    path = tmp_path / "config"
    if content == "good":
        write_kubeconfig(path, "http://127.0.0.1:1")
    elif content == "no CA":
        write_kubeconfig(path, "https://127.0.0.1:1", certificate_authority="bm8gY2VydGlmaWNhdGU=")
    elif content is not None:
        path.write_text(content)
    with pytest.raises(ClusterConfigError, match=says) as caught:
        run(Target(str(path), context), cluster_identity())
    assert "kubectl config get-contexts" in str(caught.value)


@pytest.mark.parametrize("from_environment", [False, True], ids=["given", "KUBECONFIG"])
@pytest.mark.parametrize("content", ['{"users": "T0KEN"}', "a: T0KEN\n", "T0KEN" * 100], ids=["JSON", "YAML", "long"])
def test_the_content_of_a_kubeconfig_is_not_repeated(
    content: str, from_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if from_environment:
        monkeypatch.setenv("KUBECONFIG", content)
    with pytest.raises(ClusterConfigError, match="a path was expected") as caught:
        run(Target(None if from_environment else content), cluster_identity())
    assert "T0KEN" not in str(caught.value)


def test_outside_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterConfigError, match="no in-cluster configuration"):
        run(Target(in_cluster=True), cluster_identity())


# Over the model API server.


def test_blocking_callers_share_one_connection() -> None:
    """Any number of threads may run operations; each gets its own result or error."""
    server = ApiServer(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "uid-of-the-cluster"}}
    )

    async def talk(found: Served) -> None:
        target = Target(str(found.kubeconfig))
        results = await asyncio.gather(
            *(asyncio.to_thread(run, target, cluster_identity()) for _ in range(20)), return_exceptions=True
        )
        assert set(results) == {"uid-of-the-cluster"}
        server.remove(NAMESPACES, "kube-system", "")
        with pytest.raises(NotFoundError):
            await asyncio.to_thread(run, target, cluster_identity())

    asking(Front(server), talk)


def test_create_conflict_and_delete_over_http() -> None:
    server = ApiServer()

    async def talk(found: Served) -> None:
        perform = found.driver.perform
        stored = await perform(Create(TRAINJOBS, objects.trainjob()))
        with pytest.raises(AlreadyExistsError):
            await perform(Create(TRAINJOBS, objects.trainjob()))
        changed = await perform(Replace(TRAINJOBS, stored | {"spec": stored["spec"] | {"suspend": False}}))
        with pytest.raises(ConflictError):
            await perform(Replace(TRAINJOBS, stored))
        metadata = changed["metadata"]
        with pytest.raises(ConflictError):
            await perform(Delete(TRAINJOBS, TEAM, NAME, metadata["uid"], stored["metadata"]["resourceVersion"]))
        await perform(Delete(TRAINJOBS, TEAM, NAME, metadata["uid"], metadata["resourceVersion"]))
        with pytest.raises(NotFoundError):
            await perform(READ)

    asking(Front(server), talk)


def test_every_request_is_told_of_by_verb_and_status() -> None:
    """For metrics: the verbs are RBAC's, and 0 is the status of an answer that never came."""
    told: list[tuple[str, int]] = []
    server = ApiServer(objects.trainjob(), objects.pod())
    body = server.read(TRAINJOBS, NAME)
    requests: list[tuple[Request, str, int]] = [
        (Get(TRAINJOBS, TEAM, NAME), "get", 200),
        (Get(TRAINJOBS, TEAM, "none"), "get", 404),
        (Get(NAMESPACES, "", "none"), "get", 404),
        (List(PODS, TEAM, ""), "list", 200),
        (List(PODS, "", ""), "list", 200),
        (List(TRAINJOBS, "", ""), "list", 200),
        (Watch(PODS, TEAM, "100", 0.2), "watch", 200),
        (Replace(TRAINJOBS, body), "update", 200),
        (ReplaceStatus(TRAINJOBS, body), "update", 200),
        (Create(TRAINJOBS, body), "create", 409),
        (Delete(TRAINJOBS, TEAM, NAME, body["metadata"]["uid"], "7"), "delete", 409),
    ]

    async def talk(found: Served) -> None:
        connection = await Connection.open(
            Target(str(found.kubeconfig)), lambda verb, status: told.append((verb, status))
        )
        driver = Driver(connection, attempts=1)
        for request, _, _ in requests:
            with suppress(ApiError):
                await driver.perform(request)
        await connection.close()
        write_kubeconfig(found.kubeconfig, "http://127.0.0.1:1")
        lost = await Connection.open(Target(str(found.kubeconfig)), lambda verb, status: told.append((verb, status)))
        with pytest.raises(UnreachableError):
            await Driver(lost, attempts=1).perform(Get(TRAINJOBS, TEAM, NAME))
        await lost.close()

    asking(Front(server), talk)
    assert told == [*((verb, status) for _, verb, status in requests), ("get", 0)]

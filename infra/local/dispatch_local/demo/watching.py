"""Facts as they happen: watches and logs of the API server, each in a thread of its own, into one queue."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import yaml

from dispatch_gates.contract import names

Object = Mapping[str, Any]
WATCH_SECONDS = 240
SILENCE_SECONDS = 300.0
RETRY_SECONDS = 0.5

SOURCES = {
    "trainjob": (names.TRAINJOBS, ""),
    "workload": (names.WORKLOADS, ""),
    "pod": (names.PODS, names.JOBSET_NAME),
}


@dataclass(frozen=True)
class Fact:
    """One thing that was seen. `kind` is a key of SOURCES, `log` or `record`; a watch also says how it changed."""

    kind: str
    change: str
    body: Object


class Server:
    """The API server that a kubeconfig with a token names, as streams of lines."""

    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        self._address = urlsplit(cluster["server"])
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._headers = {"Authorization": f"Bearer {user['token']}"}

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of the answer to GET `path`; raise OSError or HTTPException where there is none."""
        with closing(self._connection()) as connection:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise http.client.HTTPException(f"{answer.status} to {path}: {answer.read(300)!r}")
            while line := answer.readline():
                yield line

    def create(self, path: str, body: Object) -> None:
        """Create one object; raise OSError or HTTPException where that was not done."""
        with closing(self._connection()) as connection:
            headers = {**self._headers, "Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.CREATED:
                raise http.client.HTTPException(f"{answer.status} to {path}: {answer.read(300)!r}")

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            self._address.hostname or "",
            self._address.port or 443,
            context=self._context,
            timeout=SILENCE_SECONDS,
        )


class Watching:
    """All watches of one story. Threads are daemons: they end with the process, or once `stop` was called."""

    def __init__(self, server: Server, facts: SimpleQueue[Fact]) -> None:
        self._server, self._facts = server, facts
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to watch everything in SOURCES, in all namespaces."""
        for kind, (resource, selector) in SOURCES.items():
            prefix = f"/apis/{resource.group}" if resource.group else "/api"
            query = {"labelSelector": selector} if selector else {}
            path = f"{prefix}/{resource.version}/{resource.plural}"
            threading.Thread(target=self._watch, args=(kind, path, query), daemon=True).start()

    def follow(self, namespace: str, pod: str) -> None:
        """Begin to read a pod's log, to its end."""
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/log?follow=true"
        threading.Thread(target=self._log, args=(pod, path), daemon=True).start()

    def stop(self) -> None:
        """Let the threads end; what they still see is not wanted."""
        self._stopped.set()

    def _watch(self, kind: str, path: str, query: Mapping[str, str]) -> None:
        while not self._stopped.is_set():
            try:
                listed = json.loads(b"".join(self._server.lines(f"{path}?{urlencode(query)}")))
                for item in listed["items"]:
                    self._facts.put(Fact(kind, "ADDED", item))
                since = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
                since["timeoutSeconds"] = str(WATCH_SECONDS)
                for line in self._server.lines(f"{path}?{urlencode({**query, **since})}"):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    self._facts.put(Fact(kind, event["type"], event["object"]))
            except (OSError, http.client.HTTPException, ValueError):
                # The next round lists again, so that nothing that lasts is missed.
                self._stopped.wait(RETRY_SECONDS)

    def _log(self, pod: str, path: str) -> None:
        """Read a log until it is all there: an early end or 404 also means a kubelet that knows the pod too little."""
        seen, whole = 0, False
        while not whole and not self._stopped.is_set():
            before = seen
            try:
                for number, line in enumerate(self._server.lines(path)):
                    if number >= seen:
                        text = line.decode(errors="replace").rstrip()
                        self._facts.put(Fact("log", "ADDED", {"pod": pod, "text": text}))
                        seen = number + 1
                whole = seen == before > 0
            except http.client.HTTPException as error:
                whole = seen > 0 and str(error).startswith("404")
            except OSError:
                pass
            self._stopped.wait(RETRY_SECONDS)


def watch_record(files: Path, facts: SimpleQueue[Fact], stopped: threading.Event) -> None:
    """Report each GatedTrainJob once a Pulumi state file below `files` holds it; runs until `stopped`."""
    told: set[str] = set()
    while not stopped.wait(0.05):
        for resource in recorded(files):
            outputs = resource.get("outputs") or {}
            if outputs.get("uid") and outputs["uid"] not in told:
                told.add(outputs["uid"])
                facts.put(Fact("record", "ADDED", outputs))


def recorded(files: Path) -> list[Object]:
    """Return the gated jobs in the state files below `files`; a file that is being replaced counts next time."""
    found: list[Object] = []
    for path in sorted(files.glob(".pulumi/stacks/**/*.json")):
        try:
            checkpoint = json.loads(path.read_text()).get("checkpoint") or {}
        except (OSError, ValueError):
            continue
        resources = (checkpoint.get("latest") or {}).get("resources") or []
        found += [each for each in resources if str(each.get("type", "")).endswith(":GatedTrainJob")]
    return found

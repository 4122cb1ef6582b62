"""Facts as they happen: watches and logs of the API server, each in a thread of its own, into one queue."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from dispatch_gates.contract import names
from dispatch_local.errors import LocalError

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


class RefusedError(OSError):
    """The API server answered, and not as hoped; `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the API server answered {status} to {message}")
        self.status = status


class Server:
    """The API server of a kubeconfig's current context, as streams of lines.

    OSError or HTTPException where it does not answer.
    """

    def __init__(self, kubeconfig: Path) -> None:
        # Imported here: it takes a second, and knows every way in which a kubeconfig names a user.
        from kubernetes import config as kubernetes_config
        from kubernetes.client import Configuration

        access = Configuration()
        try:
            kubernetes_config.load_kube_config(str(kubeconfig), client_configuration=access, persist_config=False)
        except kubernetes_config.ConfigException as error:
            raise LocalError(f"the kubeconfig is not usable: {error}") from error
        self._address = urlsplit(access.host)
        self._context = ssl.create_default_context(cafile=access.ssl_ca_cert)
        if not access.verify_ssl:
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE
        if access.cert_file:
            self._context.load_cert_chain(access.cert_file, access.key_file)
        ways: Iterable[Any] = access.auth_settings().values()  # whose entries the client leaves untyped
        self._headers = {each["key"]: each["value"] for each in ways if each["in"] == "header" and each["value"]}

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of the answer to GET `path`; raise RefusedError where it is not 200."""
        with closing(self._connection()) as connection:
            connection.request("GET", self._address.path + path, headers=self._headers)
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise RefusedError(answer.status, f"GET {path}: {answer.read(300)!r}")
            while line := answer.readline():
                yield line

    def get(self, path: str) -> dict[str, Any] | None:
        """Return the object at `path`, None if there is none."""
        try:
            found: dict[str, Any] = json.loads(b"".join(self.lines(path)))
        except RefusedError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise
        return found

    def create(self, path: str, body: Object) -> dict[str, Any]:
        """Create one object and return it; raise RefusedError where that was not done."""
        return self._send("POST", path, body, {http.HTTPStatus.CREATED})

    def delete(self, path: str) -> None:
        """Delete one object; nothing happens if there is none."""
        gone = {http.HTTPStatus.OK, http.HTTPStatus.ACCEPTED, http.HTTPStatus.NOT_FOUND}
        self._send("DELETE", path, {"propagationPolicy": "Background"}, gone)

    def _send(self, verb: str, path: str, body: Object, good: set[http.HTTPStatus]) -> dict[str, Any]:
        with closing(self._connection()) as connection:
            headers = {**self._headers, "Content-Type": "application/json"}
            connection.request(verb, self._address.path + path, json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            if answer.status not in good:
                raise RefusedError(answer.status, f"{verb} {path}: {content[:300]!r}")
            parsed: dict[str, Any] = json.loads(content)
            return parsed

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "http":
            return http.client.HTTPConnection(host, port or 80, timeout=SILENCE_SECONDS)
        return http.client.HTTPSConnection(host, port or 443, context=self._context, timeout=SILENCE_SECONDS)


class Watching:
    """All watches of one story. Threads are daemons: they end with the process, or once `stop` was called."""

    def __init__(self, server: Server, facts: SimpleQueue[Fact], namespace: str, without: Collection[str] = ()) -> None:
        self._server, self._facts = server, facts
        self._namespace, self._without = namespace, without
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to watch everything in SOURCES but the kinds in `without`, in the one namespace."""
        for kind in SOURCES.keys() - set(self._without):
            resource, selector = SOURCES[kind]
            prefix = f"/apis/{resource.group}" if resource.group else "/api"
            query = {"labelSelector": selector} if selector else {}
            path = f"{prefix}/{resource.version}/namespaces/{self._namespace}/{resource.plural}"
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
            except RefusedError as error:
                whole = seen > 0 and error.status == http.HTTPStatus.NOT_FOUND
            except (OSError, http.client.HTTPException):
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

"""One connection to one API server: configuration, credentials, raw JSON requests, and their errors.

The official client loads the configuration (kubeconfig with exec plugins, in-cluster tokens that rotate, proxies,
own CAs) and signs requests. Its typed models and its own retries are not used: they cost more than a request.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from yaml import YAMLError

from dispatch_gates.cluster.errors import from_status
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.printable import is_path, kubeconfig_named
from dispatch_gates.requests import BadReplyError, DeniedError, UnreachableError

FIELD_MANAGER: Final = "dispatch-gates"
REQUEST_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 10.0
# What the client's loader lets through, beside its own error, for a file that is empty or of a wrong shape.
_UNUSABLE: Final = (ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError)


class ClusterConfigError(Exception):
    """There is no usable configuration for a cluster; the message says what to do."""


@dataclass(frozen=True)
class Target:
    """Which cluster: a kubeconfig and a context, each the usual default where it is None; or the pod's own."""

    kubeconfig: str | None = None
    context: str | None = None
    in_cluster: bool = False


class _Pool:
    """One client of the library, closed once it is retired and the last request in it has ended."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self._users = 0
        self._retired = False

    @asynccontextmanager
    async def used(self) -> AsyncIterator[Any]:
        """Keep the pool open for the length of a request."""
        self._users += 1
        try:
            yield self.api
        finally:
            self._users -= 1
            await self._close_if_done()

    async def retire(self) -> None:
        """Send nothing more through it; requests that are under way go on."""
        self._retired = True
        await self._close_if_done()

    async def _close_if_done(self) -> None:
        if self._retired and not self._users:
            await self.api.close()


Answered: TypeAlias = Callable[[str, int], None]
"""Told of each request: its verb, as RBAC names it, and the status of its answer, 0 where there was none."""


class Connection:
    """A connection pool to one API server. Made by `open`, ended by `close`, for one event loop."""

    def __init__(self, target: Target, answered: Answered = lambda _verb, _status: None) -> None:
        self._target = target
        self._answered = answered
        self._pool: _Pool | None = None
        self._renewing = asyncio.Lock()

    @classmethod
    async def open(cls, target: Target, answered: Answered = lambda _verb, _status: None) -> Connection:
        """Load the configuration; raise `ClusterConfigError` where there is none. Sends nothing yet."""
        connection = cls(target, answered)
        await connection._renew(None)
        return connection

    async def _renew(self, stale: _Pool | None) -> None:
        """Load configuration and credentials anew, unless another request has done so since `stale` was used."""
        async with self._renewing:
            if self._pool is not stale:
                return
            self._pool = _Pool(await _load(self._target))
        if stale is not None:
            await stale.retire()

    async def close(self) -> None:
        """Close the pool; requests that are under way are lost."""
        if self._pool is not None:
            await self._pool.api.close()

    @property
    def host(self) -> str:
        """The URL of the API server."""
        return str(self._current.api.configuration.host)

    @property
    def _current(self) -> _Pool:
        assert self._pool is not None, "a Connection is made by `open`"
        return self._pool

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | None = None,
        seconds: float = REQUEST_SECONDS,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncIterator[Any]:
        """Send a request and hand out the aiohttp response of a 2xx; anything else raises an `ApiError`.

        A 401 is answered by loading the credentials anew, once: such a request was not carried out.
        """
        pool = self._current
        async with self._exchange(pool, method, path, body, seconds, headers) as response:
            if response.status != 401:
                yield await _success(response, method, path)
                return
        try:
            await self._renew(pool)
        except ClusterConfigError as error:
            raise DeniedError(f"{method} {path}: the credentials expired; {error}", status=401) from error
        async with self._exchange(self._current, method, path, body, seconds, headers) as response:
            yield await _success(response, method, path)

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | None = None,
        seconds: float = REQUEST_SECONDS,
        content_type: str = "application/json",
    ) -> JsonObject:
        """Send a request and return the JSON object that it is answered with."""
        headers = {"Content-Type": content_type}
        async with self.stream(method, path, body=body, seconds=seconds, headers=headers) as response:
            content = await response.read()
        try:
            parsed = json.loads(content)
        except ValueError as error:
            raise BadReplyError(f"{method} {path}: the answer is not JSON: {content[:80]!r}") from error
        if not isinstance(parsed, dict):
            raise BadReplyError(f"{method} {path}: the answer is no JSON object: {content[:80]!r}")
        return parsed

    @asynccontextmanager
    async def _exchange(
        self, pool: _Pool, method: str, path: str, body: JsonObject | None, seconds: float, headers: Mapping[str, str]
    ) -> AsyncIterator[Any]:
        """Send a request and hand out the response, whatever its status."""
        async with pool.used() as api:
            status = 0
            try:
                response = await _send(api, method, path, body, seconds, headers)
                status = response.status
            finally:
                self._answered(_verb(method, path), status)
            try:
                yield response
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise UnreachableError(f"{method} {path}: connection lost: {_text(error)}") from error
            finally:
                response.close() if not response.content.at_eof() else response.release()


async def _load(target: Target) -> Any:
    """Make a client of the library from the target's configuration."""
    configuration = Configuration()
    # aiohttp would look for proxies and netrc at every request; they are looked up once, below.
    configuration.client_session_kwargs = {"trust_env": False}
    try:
        if target.in_cluster:
            load_incluster_config(client_configuration=configuration)
        else:
            await load_kube_config(
                config_file=_existing(target.kubeconfig),
                context=target.context,
                client_configuration=configuration,
                persist_config=False,
            )
        configuration.proxy = configuration.proxy or _proxy_for(configuration.host)
        api = ApiClient(configuration=configuration)
    except _UNUSABLE as error:
        raise ClusterConfigError(_explain(target, error)) from error
    api.user_agent = f"dispatch-gates/{version('dispatch-gates')}"
    return api


async def _success(response: Any, method: str, path: str) -> Any:
    """Return the response of a success, or raise its error."""
    if response.status >= 300:
        raise from_status(f"{method} {path}", response.status, response.headers, await _body(response))
    return response


async def _send(
    api: Any, method: str, path: str, body: JsonObject | None, seconds: float, more: Mapping[str, str]
) -> Any:
    headers = {"Accept": "application/json", "User-Agent": api.user_agent, **more}
    timeout = aiohttp.ClientTimeout(total=seconds, connect=_CONNECT_SECONDS)
    host = api.configuration.host
    try:
        await api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        reply = await api.rest_client.request(method, host + path, headers=headers, body=body, _request_timeout=timeout)
    except ConfigException as error:
        # A token file that is empty while it is rotated; nothing was sent.
        raise UnreachableError(f"{method} {path}: no credentials: {error}") from error
    except (aiohttp.ClientError, TimeoutError, ssl.SSLError, OSError) as error:
        raise UnreachableError(f"{method} {path}: no answer from {host}: {_text(error)}") from error
    return reply.response


def path_of(resource: Resource, namespace: str, name: str = "", sub: str = "", **query: str) -> str:
    """Return the API server's path for an object or, without a name, for a collection."""
    parts = ["apis", resource.group, resource.version] if resource.group else ["api", resource.version]
    parts += ["namespaces", namespace] if namespace else []
    parts += [resource.plural, *([name] if name else []), *([sub] if sub else [])]
    asked = {key: value for key, value in query.items() if value}
    return "/" + "/".join(quote(part, safe="") for part in parts) + (f"?{urlencode(asked)}" if asked else "")


def _verb(method: str, path: str) -> str:
    """Return the verb of a request as RBAC names it."""
    if method != "GET":
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
    place, _, query = path.partition("?")
    if "watch=true" in query:
        return "watch"
    parts = place.strip("/").split("/")[2 if place.startswith("/api/") else 3 :]
    return "list" if len(parts) % 2 else "get"  # pairs of kind and name, and for a list a kind more


async def _body(response: Any) -> bytes:
    try:
        content: bytes = await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError):
        return b""
    return content


def _existing(kubeconfig: str | None) -> str:
    """Return where the configuration is: what was given, or KUBECONFIG as it is now, or the usual place."""
    given = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    if not is_path(given):
        raise ConfigException("a path was expected, not the content of a kubeconfig")
    if not any(Path(path).expanduser().is_file() for path in given.split(os.pathsep) if path):
        raise ConfigException(f"there is no file {given}")
    return os.pathsep.join(str(Path(path).expanduser()) for path in given.split(os.pathsep) if path)


def _explain(target: Target, error: Exception) -> str:
    if target.in_cluster:
        return f"no in-cluster configuration: {error}"
    where = kubeconfig_named(target.kubeconfig)
    context = f", context {target.context}" if target.context else ""
    return f"{where}{context} cannot be used: {error}. `kubectl config get-contexts` lists what there is."


def _proxy_for(host: str) -> str | None:
    """Return the proxy that the environment names for this API server, as the other clients of it would use."""
    scheme, _, rest = host.partition("://")
    name = rest.split("/")[0]
    proxies: Mapping[str, str] = getproxies()
    return None if proxy_bypass(name) else proxies.get(scheme)


def _text(error: BaseException) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "time-out"
    return str(error) or type(error).__name__

"""The controller's HTTP endpoints: /healthz, /readyz and /metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest


def application(registry: CollectorRegistry, alive: Callable[[], bool], ready: Callable[[], bool]) -> web.Application:
    """Build the endpoints. `alive`: the loop makes progress; `ready`: the check is served, or would be at once."""

    def probe(asked: Callable[[], bool]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(_: web.Request) -> web.StreamResponse:
            good = asked()
            return web.Response(text="ok\n" if good else "no\n", status=200 if good else 503)

        return answer

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", probe(alive))
    app.router.add_get("/readyz", probe(ready))
    app.router.add_get("/metrics", metrics)
    return app

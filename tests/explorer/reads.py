"""How the shipped driver reads, asked of itself once: all pages or not, from etcd or from a cache that may be behind.

The explorer's operations are answered request by request, and a list is one request. What the driver makes of it is
found out here, by a connection that serves a list in two pages, of which the first is empty as it may be, and notes
what else was asked for. Where the driver stops early or lets an answer be old, the model answers so, too.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from dispatch_gates.cluster.driver import Driver
from dispatch_gates.contract.names import JOBSETS, PODS
from dispatch_gates.requests import Get, List


class Reads(NamedTuple):
    """What a read may show that is not all there is now."""

    all_pages: bool = True
    old_lists: bool = False
    old_objects: bool = False


class _Connection:
    """Serves what the driver asks for, and keeps how it asked."""

    def __init__(self) -> None:
        self.queries: list[dict[str, list[str]]] = []

    async def call(self, _: str, path: str, **__: Any) -> Any:
        query = parse_qs(urlsplit(path).query)
        self.queries.append(query)
        if "limit" not in query:
            return {"metadata": {"name": "one"}}
        if "continue" in query:
            return {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "one"}}]}
        return {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": []}

    def old(self) -> bool:
        """Whether an answer from a cache would have done."""
        return any("resourceVersion" in query for query in self.queries)


@cache
def of_the_driver() -> Reads:
    """Return how the driver, as it is imported now, reads."""
    lists, objects = _Connection(), _Connection()

    async def ask() -> int:
        listing = await Driver(lists, attempts=1).perform(List(PODS, "team", "a=b"))  # type: ignore[arg-type] # a part
        await Driver(objects, attempts=1).perform(Get(JOBSETS, "team", "x"))  # type: ignore[arg-type] # a part
        return len(listing.items)

    return Reads(asyncio.run(ask()) == 1, lists.old(), objects.old())

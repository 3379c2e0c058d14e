"""Search for services, proxies and objects by name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from pilot.debug.dashboard.mesh import MeshGraph
from pilot.debug.slices import collect_present
from pilot.debug.sources import Sources

MOST = 12
"""Maximum number of results of each sort."""
_OTHERS = frozenset({"Pod", "EndpointSlice", "Node", "Service", "ServiceEntry"})
"""Kinds that are found as services and proxies, or that nobody configures by hand."""


async def search(sources: Sources, graph: MeshGraph, text: str) -> dict[str, Any]:
    """Return the services, proxies and objects whose names contain all words of a text, best matches first."""
    words = text.lower().split()[:8]
    services = await _matching(
        ((facts.host.partition(".")[0], facts.namespace, facts.host) for facts in graph.services), words
    )
    proxies = await _matching(
        ((c.proxy.id, c.proxy.namespace, c.id) for c in sources.fleet.connections()),
        words,
    )
    objects = await _matching(_objects(sources), words)
    return {
        "services": {"total": len(services), "items": [{"namespace": n, "host": h} for _, n, h in services[:MOST]]},
        "proxies": {"total": len(proxies), "items": [{"name": n, "id": i} for n, _, i in proxies[:MOST]]},
        "objects": {
            "total": len(objects),
            "items": [
                dict(zip(("group", "kind"), what.split("/", 1), strict=True)) | {"namespace": n, "name": name}
                for name, n, what in objects[:MOST]
            ],
        },
    }


def _objects(sources: Sources) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the namespace and the kind of each object."""
    for kind in sources.db.catalogue:
        if kind.id.name not in _OTHERS:
            for key, _ in list(kind.table(sources.db).rows()):
                yield key.name, key.namespace, f"{kind.id.group}/{kind.id.name}"


async def _matching(items: Iterable[tuple[str, str, str]], words: list[str]) -> list[tuple[str, str, str]]:
    """Return the items that contain every word. The name counts most: equal, then beginning, then containing it."""

    def keep(item: tuple[str, str, str]) -> tuple[str, str, str] | None:
        whole = " ".join(item).lower()
        return item if all(word in whole for word in words) else None

    matches = await collect_present(map(keep, items)) if words else []
    first = words[0] if words else ""

    def rank(item: tuple[str, str, str]) -> Any:
        name = item[0].lower()
        return name != first, not name.startswith(first), first not in name, item

    return await asyncio.to_thread(sorted, matches, key=rank)

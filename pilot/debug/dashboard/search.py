"""Search for services, proxies and objects by name and host."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from pilot.config.networking.destination_rule import DestinationRule
from pilot.config.networking.gateway import Gateway
from pilot.config.networking.virtual_service import VirtualService
from pilot.debug.dashboard.mesh import MeshGraph
from pilot.debug.slices import collect_present
from pilot.debug.sources import Sources

MOST, MOST_IN_FULL = 12, 200
"""Maximum number of results of each sort, at first and on request."""
MAX_HOSTS = 20
"""Maximum number of hosts by which an object is found."""
_OTHERS = frozenset({"Pod", "EndpointSlice", "Node", "Service", "ServiceEntry"})
"""Kinds that are found as services and proxies, or that nobody configures by hand."""


class Candidate(NamedTuple):
    """Something that a search can find. `hosts` are names by which it is found, too."""

    name: str
    namespace: str
    what: str
    hosts: tuple[str, ...] = ()


async def search(sources: Sources, graph: MeshGraph, text: str, most: int = MOST) -> dict[str, Any]:
    """Return the services, proxies and objects that contain all words of a text, best matches first.

    A word may be a part of the name, the namespace, `NAMESPACE/NAME`, the kind or a host.
    """
    words = text.lower().split()[:8]
    services = await _matching(
        (Candidate(f.host.partition(".")[0], f.namespace, f.host, (f.host,)) for f in graph.services), words
    )
    proxies = await _matching(
        (Candidate(c.proxy.id, c.proxy.namespace, c.id) for c in sources.fleet.connections()), words
    )
    objects = await _matching(_objects(sources), words)
    return {
        "services": {"total": len(services), "items": [{"namespace": n, "host": h} for _, n, h, _ in services[:most]]},
        "proxies": {"total": len(proxies), "items": [{"name": n, "id": i} for n, _, i, _ in proxies[:most]]},
        "objects": {
            "total": len(objects),
            "items": [
                dict(zip(("group", "kind"), what.split("/", 1), strict=True)) | {"namespace": n, "name": name}
                for name, n, what, _ in objects[:most]
            ],
        },
    }


def _objects(sources: Sources) -> Iterator[Candidate]:
    """Yield the objects that users configure."""
    for kind in sources.db.catalogue:
        if kind.id.name not in _OTHERS:
            for key, row in list(kind.table(sources.db).rows()):
                what = f"{kind.id.group}/{kind.id.name}"
                yield Candidate(key.name, key.namespace, what, tuple(islice(_hosts(row.spec), MAX_HOSTS)))


def _hosts(spec: Any) -> Iterator[str]:
    """Yield the hosts that a VirtualService, Gateway, DestinationRule or route names, in lower case."""
    if isinstance(spec, DestinationRule):
        yield spec.host.lower()
    elif isinstance(spec, VirtualService):
        yield from (host.lower() for host in spec.hosts)
        destinations = (d.destination for http in spec.http for d in http.route)
        yield from (one.host.lower() for one in destinations if one is not None)
    elif isinstance(spec, Gateway):
        yield from (host.rpartition("/")[2].lower() for server in spec.servers for host in server.hosts)


async def _matching(items: Iterable[Candidate], words: list[str]) -> list[Candidate]:
    """Return the items that contain every word.

    Equal names, `NAMESPACE/NAME` and hosts are first, then names that begin with the first word or contain it.
    """

    def keep(item: Candidate) -> Candidate | None:
        whole = " ".join((f"{item.namespace}/{item.name}", item.what, *item.hosts)).lower()
        return item if all(word in whole for word in words) else None

    matches = await collect_present(map(keep, items)) if words else []
    first = words[0] if words else ""

    def rank(item: Candidate) -> Any:
        name = item.name.lower()
        is_equal = first in (name, f"{item.namespace}/{name}", *item.hosts)
        others = sum(word not in (item.namespace, item.what.lower()) for word in words)
        return not is_equal, not name.startswith(first), first not in name, others, item

    return await asyncio.to_thread(sorted, matches, key=rank)

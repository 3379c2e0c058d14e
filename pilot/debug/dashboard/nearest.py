"""The names that are most similar to a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pilot.debug.dashboard.mesh import MeshGraph
from pilot.debug.slices import collect_present
from pilot.debug.sources import Sources
from pilot.lib.suggestion import LONGEST

MOST = 5
"""Maximum number of names."""
_CUTOFF, _CLOSE = 0.6, 0.15
"""The least similarity of a name, and how much less similar than the best one it may be."""
Plain = dict[str, Any]


class NamedPlace(NamedTuple):
    """Something with a view on the dashboard. `address` are the parts of the address of the view."""

    namespace: str
    name: str
    address: tuple[str, ...]


async def find_nearest(sources: Sources, graph: MeshGraph, address: list[str]) -> list[Plain]:
    """Return the places whose names are similar to that in the address of a view, the most similar first.

    Places of the same sort are compared: namespaces, services, proxies, or objects of the kind.
    """
    sort, *rest = address or [""]
    namespace, name = (rest[-2] if len(rest) > 1 else "", rest[-1] if rest else "")
    if sort == "proxy":
        namespace, name = "", rest[0] if rest else ""
    places = {
        "namespace": lambda: _namespaces(graph),
        "service": lambda: _services(graph),
        "proxy": lambda: _proxies(sources),
        "object": lambda: _objects(sources, rest[1] if len(rest) > 1 else ""),
    }.get(sort, lambda: iter(()))()
    matches = await collect_present(_similar(namespace, _short(name), places))
    best = sorted(matches, key=lambda match: (-match[0], match[1]))[:MOST]
    return [
        {"name": "/".join(filter(None, place[:2])), "address": place.address}
        for score, place in best
        if score > best[0][0] - _CLOSE
    ]


def _short(host: str) -> str:
    """Return the name of a Kubernetes Service, or any other name or host unchanged."""
    return host.partition(".")[0] if ".svc." in host else host


def _similar(namespace: str, name: str, places: Iterable[NamedPlace]) -> Iterator[tuple[float, NamedPlace] | None]:
    """Yield each place whose name is similar with a number that says how much, and None for the others."""
    text = f"{namespace}/{name}".lower()
    matcher = difflib.SequenceMatcher(None, "", text[:LONGEST])
    for place in places:
        matcher.set_seq1(f"{place.namespace if namespace else ''}/{place.name}".lower()[:LONGEST])
        if place.name == name:
            yield 1.0, place
        elif min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= _CUTOFF and matcher.ratio() >= _CUTOFF:
            yield matcher.ratio(), place
        else:
            yield None


def _namespaces(graph: MeshGraph) -> Iterator[NamedPlace]:
    names = dict.fromkeys(facts.namespace for facts in graph.services)
    return (NamedPlace("", name, ("namespace", name)) for name in names)


def _services(graph: MeshGraph) -> Iterator[NamedPlace]:
    for facts in graph.services:
        yield NamedPlace(facts.namespace, _short(facts.host), ("service", facts.namespace, facts.host))


def _proxies(sources: Sources) -> Iterator[NamedPlace]:
    return (NamedPlace("", c.proxy.id, ("proxy", c.id)) for c in sources.fleet.connections())


def _objects(sources: Sources, kind_name: str) -> Iterator[NamedPlace]:
    """Yield the objects of a kind, of which the name may be in another case."""
    for kind in sources.db.catalogue:
        if kind.id.name.lower() == kind_name.lower():
            for key, _ in list(kind.table(sources.db).rows()):
                yield NamedPlace(
                    key.namespace, key.name, ("object", kind.id.group, kind.id.name, key.namespace, key.name)
                )

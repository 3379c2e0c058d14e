"""Search for services, proxies and objects by name and host."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD
from pilot.config.kubernetes.endpoint_slice import EndpointSlice
from pilot.config.kubernetes.pod import Pod
from pilot.config.networking.destination_rule import DestinationRule
from pilot.config.networking.gateway import Gateway
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.networking.workload_entry import WorkloadEntry
from pilot.config.problem import Severity
from pilot.debug.dashboard.mesh import Level, MeshContext, MeshGraph, MeshHealth
from pilot.debug.dashboard.service_routes import first_port_endpoints
from pilot.debug.slices import collect_present
from pilot.debug.sources import Sources
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh

MOST, MOST_IN_FULL = 12, 200
"""Maximum number of results of each sort, at first and on request."""
MAX_NAMESPACES = 5
MAX_HOSTS = 20
"""Maximum number of hosts by which an object is found."""
_OTHERS = frozenset({"Pod", "EndpointSlice", "Node", "Service", "ServiceEntry"})
"""Kinds that are found as services and proxies, or that nobody configures by hand."""

_ADDRESSED = frozenset({ENDPOINT_SLICE.id, POD.id})
_LEVELS: tuple[Level, ...] = ("bad", "warn", "ok")
_SEPARATORS = frozenset(".:")
_OF_ADDRESSES = frozenset(string.hexdigits) | _SEPARATORS


class Candidate(NamedTuple):
    """Something that a search can find. `hosts` are names and addresses by which it is found, too."""

    name: str
    namespace: str
    what: str
    hosts: tuple[str, ...] = ()


async def search(
    sources: Sources, graph: MeshGraph, context: MeshContext, text: str, most: int = MOST
) -> dict[str, Any]:
    """Return the namespaces, services, proxies and objects that contain all words of a text, best matches first.

    A word may be a part of the name, the namespace, `NAMESPACE/NAME`, the kind, a host or an address. Of matches that
    are equally good, those with problems are first.
    """
    words = text.lower().split()[:8]
    addresses = [word for word in words if set(word) <= _OF_ADDRESSES and not _SEPARATORS.isdisjoint(word)]
    health = MeshHealth(graph, context)
    by_host = {facts.host: facts for facts in graph.services}
    severities = _severities(context)
    namespaces = sorted({f.namespace for f in graph.services if words and all(word in f.namespace for word in words)})
    services = await _matching(_services(sources.db, graph, addresses), words, lambda c: health.level(by_host[c.what]))
    proxies = await _matching(
        (Candidate(c.proxy.id, c.proxy.namespace, c.id, tuple(c.proxy.ips)) for c in sources.fleet.connections()), words
    )
    objects = await _matching(_objects(sources, addresses), words, lambda c: severities.get(c[:3], "ok"))
    namespaces.sort(key=lambda name: (name not in words, not name.startswith(words[0])))
    return {
        "namespaces": {"total": len(namespaces), "items": [{"name": name} for name in namespaces[:MAX_NAMESPACES]]},
        "services": {
            "total": len(services),
            "items": [{"namespace": n, "host": h, "level": level} for level, (_, n, h, _) in services[:most]],
        },
        "proxies": {"total": len(proxies), "items": [{"name": n, "id": i} for _, (n, _, i, _) in proxies[:most]]},
        "objects": {
            "total": len(objects),
            "items": [
                dict(zip(("group", "kind"), what.split("/", 1), strict=True))
                | {"namespace": n, "name": name, "level": level}
                for level, (name, n, what, _) in objects[:most]
            ],
        },
    }


def _is_covered(word: str, hosts: Iterable[str]) -> bool:
    """Return whether a host with a wildcard, such as `*.example.com`, matches a word."""
    return any(host.startswith("*.") and word.endswith(host[1:]) for host in hosts)


def _severities(context: MeshContext) -> dict[tuple[str, str, str], Level]:
    """Return the level of each object with errors or warnings, by its name, namespace and kind."""
    levels: dict[tuple[str, str, str], Level] = {}
    for problem, _ in reversed(context.problems):  # errors are first in the list, and win
        if problem.severity is not Severity.INFO:
            kind, namespace, name = problem.object
            level: Level = "bad" if problem.severity is Severity.ERROR else "warn"
            levels[name, namespace, f"{kind.group}/{kind.name}"] = level
    return levels


def _services(db: Mesh, graph: MeshGraph, addresses: list[str]) -> Iterator[Candidate]:
    """Yield the services and, if an address is searched, the addresses of each and of its endpoints that contain it."""
    for f in graph.services:
        hosts = (f.host, *_addresses_of(db, ServiceRef(f.host, f.namespace), addresses))
        yield Candidate(f.host.partition(".")[0], f.namespace, f.host, hosts)


def _addresses_of(db: Mesh, ref: ServiceRef, addresses: list[str]) -> tuple[str, ...]:
    if not addresses or (target := service(db, ref)) is None:
        return ()
    of_endpoints = (address for e in first_port_endpoints(db, ref) for address in e.addresses)
    return _containing(addresses, (*target.addresses, *of_endpoints))


def _containing(words: list[str], addresses: Iterable[str]) -> tuple[str, ...]:
    """Return at most `MAX_HOSTS` addresses that contain one of the words."""
    return tuple(islice((a for a in addresses if any(word in a for word in words)), MAX_HOSTS))


def _objects(sources: Sources, addresses: list[str]) -> Iterator[Candidate]:
    """Yield the objects that users configure and, if an address is searched, EndpointSlices and Pods."""
    for kind in sources.db.catalogue:
        if kind.id.name not in _OTHERS or (addresses and kind.id in _ADDRESSED):
            for key, row in list(kind.table(sources.db).rows()):
                what = f"{kind.id.group}/{kind.id.name}"
                hosts = islice(_hosts(row.spec), MAX_HOSTS) if kind.id not in _ADDRESSED else ()
                yield Candidate(key.name, key.namespace, what, (*hosts, *_containing(addresses, _addresses(row.spec))))


def _addresses(spec: Any) -> Iterator[str]:
    """Yield the addresses of an EndpointSlice, a Pod or a WorkloadEntry."""
    if isinstance(spec, EndpointSlice):
        yield from (address for endpoint in spec.endpoints for address in endpoint.addresses)
    elif isinstance(spec, Pod):
        yield spec.status.pod_ip
    elif isinstance(spec, WorkloadEntry):
        yield spec.address


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


async def _matching(
    items: Iterable[Candidate], words: list[str], level: Callable[[Candidate], Level] = lambda _: "ok"
) -> list[tuple[Level, Candidate]]:
    """Return the items that contain every word, each with its level.

    Equal names, `NAMESPACE/NAME` and hosts are first, then names that begin with the first word or contain it. Of equal
    matches, the worst level is first.
    """

    def keep(item: Candidate) -> Candidate | None:
        whole = " ".join((f"{item.namespace}/{item.name}", item.what, *item.hosts)).lower()
        return item if all(word in whole or _is_covered(word, item.hosts) for word in words) else None

    matches = await collect_present(map(keep, items)) if words else []
    first = words[0] if words else ""

    def rank(match: tuple[Level, Candidate]) -> Any:
        worst, item = match
        name = item.name.lower()
        is_equal = first in (name, f"{item.namespace}/{name}", *item.hosts)
        others = sum(word not in (item.namespace, item.what.lower()) for word in words)
        return not is_equal, not name.startswith(first), first not in name, others, _LEVELS.index(worst), item

    return await asyncio.to_thread(lambda: sorted(((level(item), item) for item in matches), key=rank))

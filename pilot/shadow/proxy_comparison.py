"""Compares all proxies of the reference with what this control plane derives for them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from pilot.shadow.attribution import Attribution
from pilot.shadow.causes import DifferenceCause, find_causes
from pilot.shadow.cluster_snapshot import ShadowMesh
from pilot.shadow.derived_resources import derive_resources
from pilot.shadow.reference_pages import ReferencePages
from pilot.shadow.reference_proxies import (
    ConnectedProxies,
    RawResources,
    ReferenceProxy,
    read_proxies,
    read_resources,
    unique,
)
from pilot.shadow.resource_comparison import ResourceComparison

_REQUESTS_AT_ONCE = 4
"""Number of proxies whose configuration is requested at the same time, so that the reference is not overloaded."""


class ProxyReport(NamedTuple):
    """The result of a comparison.

    `gone` are proxies that disconnected meanwhile, and `rejected` those with invalid nodes. `unread` maps the short
    names of the types that the reference's pages do not show to the number of proxies.
    """

    proxies: int
    resources: int
    equal: int
    causes: list[DifferenceCause]
    gone: list[str]
    rejected: dict[str, str]
    unread: dict[str, int]
    seconds: float


async def compare_proxies(replicas: Sequence[ReferencePages], mesh: ShadowMesh) -> ProxyReport:
    """Compare the proxies of all replicas of the reference. Raise ReferenceFault if a page cannot be read."""
    started_at, comparison, gone, rejected = time.monotonic(), ResourceComparison(), list[str](), dict[str, str]()
    unread: Counter[str] = Counter()
    for pages in replicas:
        connected: ConnectedProxies = await read_proxies(pages)
        rejected |= connected.rejected
        proxies = unique(connected.proxies)
        mesh.connect([(one.node_id, one.proxy) for one in proxies])
        async for one, resources in _read_all(pages, proxies):
            if resources is None:
                gone.append(one.connection_id)
            else:
                derived = derive_resources(mesh.mesh, one)
                unread.update(derived.keys() - resources.keys())
                comparison.add(one, resources, {kind: derived[kind] for kind in derived.keys() & resources.keys()})
                await asyncio.sleep(0)
    differing = comparison.differing
    causes = find_causes(differing, Attribution(mesh).find)
    unequal = sum(len(one.proxies) for one in differing)
    seconds = time.monotonic() - started_at
    return ProxyReport(
        comparison.proxies,
        comparison.resources,
        comparison.resources - unequal,
        causes,
        gone,
        rejected,
        dict(unread),
        seconds,
    )


async def _read_all(
    pages: ReferencePages, proxies: Sequence[ReferenceProxy]
) -> AsyncIterator[tuple[ReferenceProxy, RawResources | None]]:
    """Yield the proxies with their resources, in order. Some are requested in advance."""
    tasks: list[asyncio.Task[RawResources | None]] = []
    try:
        for number, one in enumerate(proxies):
            ahead = proxies[len(tasks) : number + _REQUESTS_AT_ONCE]
            tasks += [asyncio.create_task(read_resources(pages, other)) for other in ahead]
            yield one, await tasks[number]
    finally:
        for task in tasks:
            task.cancel()

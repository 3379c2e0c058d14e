"""Compares all proxies of the reference with what this control plane derives for them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

from pilot.kube.api_errors import KubeError
from pilot.lib.xds_types import ADDRESS
from pilot.mesh.model.proxy import NodeError
from pilot.shadow.attribution import Attribution
from pilot.shadow.causes import DifferenceCause, find_causes
from pilot.shadow.cluster_snapshot import ShadowMesh
from pilot.shadow.derived_resources import DerivedResources, derive_resources
from pilot.shadow.hidden_metadata import infer_metadata, matched_metadata
from pilot.shadow.reference_pages import ReferencePages
from pilot.shadow.reference_proxies import (
    ConnectedProxies,
    RawResources,
    ReferenceProxy,
    read_addresses,
    read_proxies,
    read_resources,
    unique,
)
from pilot.shadow.reference_server import ReferenceServer
from pilot.shadow.reference_stream import StreamRefused, receive_configuration
from pilot.shadow.resource_comparison import ResourceComparison
from pilot.shadow.workload_proxies import WorkloadProxies, WorkloadProxy

_REQUESTS_AT_ONCE = 4
"""Number of proxies whose configuration is requested at the same time, so that the reference is not overloaded."""

_STREAMS_AT_ONCE = 16
"""Number of proxies as which the comparison is connected at the same time."""
RequestToken = Callable[[str, str], Awaitable[str]]
"""A function that returns a token of the ServiceAccount with a namespace and a name. It may raise KubeError."""


class ProxyReport(NamedTuple):
    """The result of a comparison.

    `gone` are proxies that disconnected meanwhile, and `rejected` those with invalid nodes. `unread` maps the short
    names of the types that the reference's pages do not show to the number of proxies. `inferred` contains the metadata
    by connection that the pages do not show, and that proxies seem to have. `pods` is None if every connected proxy was
    compared, or the number of Pods of the workloads of each of which one proxy was compared.
    """

    proxies: int
    resources: int
    equal: int
    causes: list[DifferenceCause]
    gone: list[str]
    rejected: dict[str, str]
    unread: dict[str, int]
    inferred: dict[str, dict[str, str]]
    seconds: float
    pods: int | None = None


async def compare_proxies(replicas: Sequence[ReferencePages], mesh: ShadowMesh) -> ProxyReport:
    """Compare the proxies of all replicas of the reference. Raise ReferenceFault if a page cannot be read."""
    run = _Run(mesh)
    for pages in replicas:
        await run.compare_replica(pages)
    return run.report()


async def compare_workloads(
    server: ReferenceServer, request_token: RequestToken, workloads: WorkloadProxies, mesh: ShadowMesh
) -> ProxyReport:
    """Connect to the reference as one proxy of each workload, and compare what it sends.

    Raise ReferenceFault if the reference is unreachable.
    """
    run = _Run(mesh)
    run.rejected |= workloads.skipped
    gate = asyncio.Semaphore(_STREAMS_AT_ONCE)

    async def count_pods(one: WorkloadProxy) -> int:
        async with gate:
            return one.pods if await run.compare_workload(server, request_token, one) else 0

    pods = await asyncio.gather(*map(count_pods, workloads.proxies))
    return run.report()._replace(pods=sum(pods))


class _Run:
    """A comparison in progress. The attributes are those of ProxyReport."""

    def __init__(self, mesh: ShadowMesh) -> None:
        self._mesh, self._metadata, self._started_at = mesh, matched_metadata(mesh), time.monotonic()
        self.comparison, self.unread = ResourceComparison(), Counter[str]()
        self.gone, self.rejected = list[str](), dict[str, str]()
        self.inferred: dict[str, dict[str, str]] = {}

    async def compare_replica(self, pages: ReferencePages) -> None:
        connected: ConnectedProxies = await read_proxies(pages)
        self.rejected |= connected.rejected
        proxies = unique(connected.proxies)
        self._mesh.connect([(one.node_id, one.proxy) for one in proxies])
        addresses = await read_addresses(pages) if any(ADDRESS in one.watches for one in proxies) else None
        async for one, resources in _read_all(pages, proxies):
            if resources is None:
                self.gone.append(one.connection_id)
            else:
                if addresses is not None and ADDRESS in one.watches:
                    resources["wds"] = addresses
                self._compare(one, resources)
                await asyncio.sleep(0)

    async def compare_workload(self, server: ReferenceServer, request_token: RequestToken, one: WorkloadProxy) -> bool:
        """Connect as a proxy, and compare what it receives. Return whether the reference accepted the proxy."""
        try:
            token = await request_token(one.namespace, one.service_account)
            received = await receive_configuration(server, one.node, token)
        except (StreamRefused, NodeError, KubeError) as error:
            self.rejected[one.label] = str(error)
            return False
        proxy, resources = received
        self._mesh.connect([(proxy.node_id, proxy.proxy)])
        self.comparison.add(proxy, resources, self._derive(proxy, resources))
        return True

    def report(self) -> ProxyReport:
        """Return the result of the comparisons so far."""
        differing = self.comparison.differing
        causes = find_causes(differing, Attribution(self._mesh).find)
        unequal = sum(len(one.proxies) for one in differing)
        return ProxyReport(
            self.comparison.proxies,
            self.comparison.resources,
            self.comparison.resources - unequal,
            causes,
            self.gone,
            self.rejected,
            dict(self.unread),
            self.inferred,
            time.monotonic() - self._started_at,
        )

    def _compare(self, one: ReferenceProxy, resources: RawResources) -> None:
        def differences(trial: ReferenceProxy) -> int:
            return self.comparison.count_differing(resources, self._derive(trial, resources))

        proxy = infer_metadata(self._mesh, one, self._metadata, differences)
        if proxy is not one:
            shown = one.proxy.metadata.keys()
            self.inferred[one.connection_id] = {k: v for k, v in proxy.proxy.metadata.items() if k not in shown}
        self.unread.update(set(proxy.short_types) - resources.keys())
        self.comparison.add(proxy, resources, self._derive(proxy, resources))

    def _derive(self, one: ReferenceProxy, resources: RawResources) -> DerivedResources:
        """Return the derived resources of the types that the reference shows."""
        derived = derive_resources(self._mesh.mesh, one)
        return {kind: derived[kind] for kind in derived.keys() & resources.keys()}


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

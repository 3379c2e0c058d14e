"""What a control plane writes into clusters that it is outside of: the roots of its authority, where a cluster says that this one is to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import msgspec

from pilot.controllers.ca_bundles import CaBundles
from pilot.controllers.trust_bundle import Writer
from pilot.kube.client import ApiClient
from pilot.kube.errors import KubeError, NotFound
from pilot.lib.backoff import RetryDelays
from pilot.lib.log import scope
from pilot.lib.tasks import cancel_tasks

CONTROL_PLANES = "topology.istio.io/controlPlaneClusters"
_log = scope("secretcontroller")


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Namespace(msgspec.Struct):
    metadata: _Metadata


class WrittenCluster(NamedTuple):
    """What is written into one cluster: roots by whoever leads there, and those in webhooks by every control plane, where it has any."""

    roots: Writer
    bundles: CaBundles | None


Lead = Callable[[ApiClient, Writer], Coroutine[Any, Any, None]]


class RemoteWriters:
    """Writes into each cluster whose namespace of our name has our cluster, or `*`, in an annotation. `make` returns what is written by a client,
    `lead` runs the roots while we lead in a cluster. `attempts` are those to read the namespace."""

    def __init__(
        self,
        own: str,
        namespace: str,
        make: Callable[[ApiClient], WrittenCluster],
        lead: Lead,
        authority: asyncio.Event,
        attempts: Callable[[], RetryDelays],
    ) -> None:
        self._own, self._namespace, self._make, self._lead, self._attempts = own, namespace, make, lead, attempts
        self._authority = authority
        self._written: list[WrittenCluster] = []

    def changed(self) -> None:
        """Looks at all of it again: the roots, or the namespaces that count, are others now."""
        for roots, bundles in self._written:
            roots.changed()
            if bundles is not None:
                bundles.changed()

    async def run(self, cluster: str, client: ApiClient) -> None:
        """Writes into one cluster until it is cancelled; returns where the cluster wants nothing of us."""
        if not await self._is_wanted(cluster, client):
            return
        await self._authority.wait()
        _log.info("cluster %s: this control plane writes there", cluster)
        async with self._writing(self._make(client)) as (roots, bundles):
            tasks = [asyncio.create_task(self._lead(client, roots), name=f"lead in cluster {cluster}")]
            if bundles is not None:
                tasks.append(
                    asyncio.create_task(
                        bundles.run(), name=f"write roots into webhook configurations of cluster {cluster}"
                    )
                )
            try:
                await asyncio.gather(*tasks)
            finally:
                await cancel_tasks(*tasks)

    @contextlib.asynccontextmanager
    async def _writing(self, written: WrittenCluster) -> AsyncIterator[WrittenCluster]:
        self._written.append(written)
        try:
            yield written
        finally:
            self._written.remove(written)

    async def _is_wanted(self, cluster: str, client: ApiClient) -> bool:
        """Returns whether a cluster wants us to write, as soon as that can be told."""
        attempts = self._attempts()
        while True:
            try:
                found = await client.call("GET", f"/api/v1/namespaces/{self._namespace}")
                return self._names_us(msgspec.json.decode(found, type=_Namespace).metadata.annotations or {})
            except NotFound:
                return False
            except KubeError as error:
                _log.warning("cluster %s: whether to write there: %s", cluster, error)
            await asyncio.sleep(attempts.next_delay())

    def _names_us(self, annotations: dict[str, str]) -> bool:
        named: Sequence[str] = annotations.get(CONTROL_PLANES, "").split(",")
        return "*" in named or self._own in named

"""Controllers for remote clusters that select this control plane. They write its root certificates there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import msgspec

from pilot.controllers.ca_bundles import CaBundleController
from pilot.controllers.reconciler import Controller
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import KubeError, NotFound
from pilot.lib.backoff import RetryDelays
from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks

CONTROL_PLANES = "topology.istio.io/controlPlaneClusters"
_log = scope("secretcontroller")


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Namespace(msgspec.Struct):
    metadata: _Metadata


class ClusterControllers(NamedTuple):
    """Controllers of one remote cluster.

    Only the leader runs `roots`. Every control plane runs `bundles`, which writes into the control plane's own webhook
    configurations. `bundles` is None if that is disabled.
    """

    roots: Controller
    bundles: CaBundleController | None


Lead = Callable[[ApiClient, Controller], Coroutine[Any, Any, None]]


class RemoteControllers:
    """Runs controllers in each cluster that selects the local cluster.

    To select it, an annotation on the cluster's namespace `namespace` lists the local cluster or `*`. `build` returns
    the controllers for a cluster, and `lead` runs `roots` while this replica is the leader in that cluster.
    `authority_ready` is set when root certificates exist. `new_delays` returns the delays between attempts to read the
    annotation.
    """

    def __init__(
        self,
        local_cluster: str,
        namespace: str,
        build: Callable[[ApiClient], ClusterControllers],
        lead: Lead,
        authority_ready: asyncio.Event,
        new_delays: Callable[[], RetryDelays],
    ) -> None:
        self._local_cluster, self._namespace, self._build, self._lead = local_cluster, namespace, build, lead
        self._authority_ready, self._new_delays = authority_ready, new_delays
        self._running: list[ClusterControllers] = []

    def resync(self) -> None:
        """Resync all controllers, because the root certificates or the selected namespaces changed."""
        for roots, bundles in self._running:
            roots.resync()
            if bundles is not None:
                bundles.resync()

    async def run(self, cluster: str, client: ApiClient) -> None:
        """Run the controllers of a cluster until cancelled. Return if it does not select the local cluster."""
        if not await self._is_selected(cluster, client):
            return
        await self._authority_ready.wait()
        _log.info("cluster %s: writing root certificates", cluster)
        async with self._tracked(self._build(client)) as (roots, bundles):
            tasks = [asyncio.create_task(self._lead(client, roots), name=f"lead in cluster {cluster}")]
            if bundles is not None:
                tasks.append(
                    asyncio.create_task(bundles.run(), name=f"write CA bundles in webhooks of cluster {cluster}")
                )
            try:
                await asyncio.gather(*tasks)
            finally:
                await cancel_tasks(*tasks)

    @contextlib.asynccontextmanager
    async def _tracked(self, controllers: ClusterControllers) -> AsyncIterator[ClusterControllers]:
        self._running.append(controllers)
        try:
            yield controllers
        finally:
            self._running.remove(controllers)

    async def _is_selected(self, cluster: str, client: ApiClient) -> bool:
        """Return whether a cluster selects the local cluster. Retry until the cluster responds."""
        delays = self._new_delays()
        while True:
            try:
                body = await client.call("GET", f"/api/v1/namespaces/{self._namespace}")
                return self._selects_us(msgspec.json.decode(body, type=_Namespace).metadata.annotations or {})
            except NotFound:
                return False
            except KubeError as error:
                _log.warning("cluster %s: cannot read namespace %s: %s", cluster, self._namespace, error)
            await asyncio.sleep(delays.next_delay())

    def _selects_us(self, annotations: dict[str, str]) -> bool:
        clusters: Sequence[str] = annotations.get(CONTROL_PLANES, "").split(",")
        return "*" in clusters or self._local_cluster in clusters

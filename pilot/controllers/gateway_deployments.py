"""Deploys Gateways of the Gateway API. Each Gateway gets a Deployment, a Service and a ServiceAccount.

The objects are rendered from one of the injector's templates. They are applied server-side, so fields that other
clients set are kept. They are owned by the Gateway and deleted with it.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef, Problem
from pilot.controllers.deployed_objects import DeployedObjects
from pilot.controllers.reconciler import Reconciler
from pilot.controllers.watched_keys import WatchedKeys
from pilot.derive import Node
from pilot.ingest.problems import ProblemStore
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import NotFound
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.list_watch import ObjectChange
from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.lowering.gateway_api.deployments import (
    CONTROLLER_VERSION,
    VERSION,
    Deployment,
    all_gateways,
    deployment,
)
from pilot.mesh.tables.database import Mesh
from webhook.gateway.overlay import ASKED_FOR
from webhook.gateway.render import DATAPLANE_MODE, NAME_LABEL, NETWORK, GatewayToRender, RenderError
from webhook.inject.config import InjectorConfig

MERGE_PATCH = "application/merge-patch+json"
Plain = dict[str, Any]
Labels = Mapping[str, str]
_DIGITS = re.compile(r"\d+")
_log = scope("gateway")


def _ref(key: ObjectKey) -> ObjectRef:
    return ObjectRef(KUBERNETES_GATEWAY.id, key.namespace, key.name)


class RenderingContext(NamedTuple):
    """Configuration of the control plane with which templates are rendered.

    config: Returns the injector's configuration, or None if there is none yet.
    proxy_config: Returns the ProxyConfig of pods with a namespace and labels.
    render: Returns the objects of a Gateway, or raises RenderError.
    proxy_ids: Returns the user and group IDs of proxies in a namespace.
    is_ours: Returns whether a Gateway with some labels in a namespace belongs to this revision.
    copies_metadata: Whether a Gateway without infrastructure metadata passes its own labels and annotations on.
    """

    config: Callable[[], InjectorConfig | None]
    mesh: Callable[[], MeshConfig]
    proxy_config: Callable[[str, Labels], Awaitable[ProxyConfig]]
    render: Callable[[GatewayToRender], Awaitable[list[Plain]]]
    proxy_ids: Callable[[str], tuple[int, int]]
    is_ours: Callable[[Labels, str], bool]
    cluster: str
    revision: str
    copies_metadata: bool = True
    compliance_policy: str = ""


class GatewayDeploymentController:
    """Deploys Gateways. `collection` returns the API path of all Gateways, or "" if the kind is not available.

    A Gateway that cannot be deployed, for example because its overlays are too large, is reported to `problems`.
    """

    def __init__(
        self,
        client: ApiClient,
        db: Mesh,
        collection: Callable[[], str],
        context: RenderingContext,
        controller: str,
        problems: ProblemStore,
        options: WatchOptions,
        rng: random.Random,
    ) -> None:
        self._client, self._db, self._collection, self._context = client, db, collection, context
        self._problems = problems
        self._reported: set[ObjectKey] = set()
        self._controller, self._options, self._rng = controller, options, rng
        self._reconciler: Reconciler[ObjectKey] = Reconciler(
            "deployment of Gateway", self._reconcile, options.backoff, rng
        )
        self._objects = DeployedObjects(client, controller, self._enqueue, options, rng)
        self._metadata: dict[ObjectKey, Plain] = {}
        self._watched: WatchedKeys[Deployment | None] = WatchedKeys(
            db, all_gateways, deployment, self._reconciler.enqueue
        )
        self._informing: asyncio.Task[None] | None = None
        self._kubernetes_version = 0

    # -- changes -------------------------------------------------------------------------------------------------------

    def on_commit(self, nodes: Iterable[Node]) -> None:
        """Enqueue the Gateways that a commit affects."""
        self._watched.on_commit(nodes)
        self._start_informers()

    def resync(self) -> None:
        """Enqueue all Gateways."""
        self._watched.resync()

    def _enqueue(self, gateway: ObjectKey) -> None:
        self._reconciler.enqueue((gateway,))

    def _start_informers(self) -> None:
        """Start watching deployed objects when the first Gateway appears."""
        if self._watched and self._informing is None and self._collection():
            self._informing = asyncio.create_task(self._run_informers(), name="watch deployed Gateways")

    # -- life cycle ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Deploy Gateways until cancelled. No objects are watched until a Gateway exists."""
        try:
            self._watched.start()
            self._start_informers()
            await self._reconciler.run()
        finally:
            self._watched.stop()
            for key in tuple(self._reported):
                self._report(key, None)
            self._metadata = {}
            informing, self._informing = self._informing, None
            await cancel_tasks(informing)

    async def _run_informers(self) -> None:
        """Watch deployed objects, and the metadata of Gateways. The tables contain only a part of the metadata."""
        gateways = Informer(
            self._client,
            WatchedCollection(self._collection(), metadata_only=True),
            self._receive,
            self._options,
            self._rng,
        )
        informers = [gateways, *self._objects.informers()]
        tasks = [
            asyncio.create_task(informer.run(), name=f"watch {informer.collection.path}") for informer in informers
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_tasks(*tasks)

    async def _receive(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            key = ObjectKey(*change.name)
            old = self._metadata.pop(key, None)
            if change.raw is not None:
                metadata = msgspec.json.decode(change.raw)["metadata"]
                new = self._metadata[key] = {
                    field: metadata[field]
                    for field in ("name", "namespace", "uid", "labels", "annotations")
                    if field in metadata
                }
                if new != old:
                    self._enqueue(key)

    # -- one Gateway ---------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: ObjectKey) -> None:
        metadata = self._metadata.get(key)
        if key not in self._watched or metadata is None:
            self._report(key, None)
            return
        desired = self._watched.value(key)
        labels: Labels = metadata.get("labels") or {}
        config = self._context.config()
        if desired is None or config is None or not self._context.is_ours(labels, key.namespace):
            self._report(key, None)
            return
        try:
            objects = await self._context.render(await self._render_input(desired, metadata, config))
        except RenderError as error:
            path = "spec.infrastructure.parametersRef" if desired.overlays else "spec"
            message = f"the Gateway is not deployed: {error}"
            self._report(key, Problem(code="not-deployed", object=_ref(key), path=path, message=message))
            return
        self._report(key, None)
        if desired.fault is not None:
            _log.error("cannot deploy Gateway %s/%s: %s", *key, desired.fault.message)
            return
        await self._claim(key, metadata)
        for plain in objects:
            if key not in self._watched:  # deleted meanwhile
                return
            if not await self._objects.apply(plain):
                _log.warning(
                    "Gateway %s/%s: %s %s exists already and is not managed by a Gateway",
                    *key,
                    plain["kind"],
                    plain["metadata"]["name"],
                )
        kinds = {plain["kind"] for plain in objects}
        for deployed in self._objects.of_gateway(key):
            if deployed.kind in ASKED_FOR and deployed.kind not in kinds:
                await self._objects.delete(deployed)

    def _report(self, key: ObjectKey, problem: Problem | None) -> None:
        """Replace the problem of a Gateway."""
        self._problems.replace(("deployment of Gateway", f"{key.namespace}/{key.name}"), (problem,) if problem else ())
        if problem is not None:
            self._reported.add(key)
        else:
            self._reported.discard(key)

    async def _claim(self, key: ObjectKey, metadata: Plain) -> None:
        """Annotate a Gateway with the version of this controller."""
        if (metadata.get("annotations") or {}).get(CONTROLLER_VERSION) == str(VERSION):
            return
        base, _, plural = self._collection().rpartition("/")
        patch = {"metadata": {"uid": metadata.get("uid"), "annotations": {CONTROLLER_VERSION: str(VERSION)}}}
        path, query = f"{base}/namespaces/{key.namespace}/{plural}/{key.name}", {"fieldManager": self._controller}
        try:
            await self._client.call("PATCH", path, query, msgspec.json.encode(patch), MERGE_PATCH)
        except NotFound:  # deleted meanwhile
            return

    async def _render_input(self, desired: Deployment, metadata: Plain, config: InjectorConfig) -> GatewayToRender:
        context, namespace = self._context, desired.gateway.namespace
        labels, annotations = desired.labels, desired.annotations
        gateway_metadata = metadata if context.copies_metadata else {}
        labels = dict(labels if labels is not None else gateway_metadata.get("labels") or {})
        network = config.value("global", "network")
        if network and NETWORK not in (metadata.get("labels") or {}) and desired.deployed_class.template == "waypoint":
            labels[NETWORK] = network
        if desired.opts_out_of_ambient and DATAPLANE_MODE not in (metadata.get("labels") or {}):
            labels.setdefault(DATAPLANE_MODE, "none")
        uid, gid = context.proxy_ids(namespace)
        return GatewayToRender(
            metadata=metadata,
            class_name=desired.class_name,
            template=desired.deployed_class.template,
            managed=desired.deployed_class.label,
            name=desired.name,
            account=desired.account,
            service_type=desired.service_type,
            ports=desired.ports,
            addresses=desired.addresses,
            labels=labels,
            annotations=annotations if annotations is not None else gateway_metadata.get("annotations") or {},
            overlays=desired.overlays,
            proxy_config=await context.proxy_config(namespace, {NAME_LABEL: desired.gateway.name}),
            mesh=context.mesh(),
            cluster=context.cluster,
            revision=context.revision,
            kubernetes=await self._find_kubernetes_version(),
            uid=uid,
            gid=gid,
            compliance_policy=context.compliance_policy,
        )

    async def _find_kubernetes_version(self) -> int:
        """Return the Kubernetes version of the cluster as a number, such as 134 for 1.34."""
        if not self._kubernetes_version:
            version = msgspec.json.decode(await self._client.call("GET", "/version"))
            major, minor = (_DIGITS.match(str(version.get(field, ""))) for field in ("major", "minor"))
            self._kubernetes_version = int(major[0]) * 100 + int(minor[0]) if major and minor else 0
        return self._kubernetes_version

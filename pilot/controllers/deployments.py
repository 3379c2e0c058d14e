"""Gateways of the Gateway API are deployed: each has its Deployment, Service and ServiceAccount, and keeps them as they should be.

What is deployed is rendered from a template of the injector's, and applied as the fields of one owner; what others set beside them stays. The
objects belong to the Gateway, with which the API server takes them away.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.config.object import ObjectKey
from pilot.controllers.deployed_objects import DeployedObjects
from pilot.controllers.reconciler import Upkeep
from pilot.controllers.watched_keys import WatchedKeys
from pilot.derive import Node
from pilot.kube.client import ApiClient
from pilot.kube.errors import NotFound
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.wire import ObjectChange
from pilot.lib.log import scope
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
from webhook.gateway.render import DATAPLANE_MODE, NAME_LABEL, NETWORK, GatewayToRender, RenderError, render_gateway
from webhook.inject.config import InjectorConfig

MERGE_PATCH = "application/merge-patch+json"
Plain = dict[str, Any]
Labels = Mapping[str, str]
_DIGITS = re.compile(r"\d+")
_log = scope("gateway")


class RenderingSurroundings(NamedTuple):
    """What a rendering asks of the control plane. `config` returns the injector's configuration, None before there is one; `proxy_config` that of
    pods of a namespace with some labels; `proxy_ids` who runs there. `copies`: a Gateway's own labels and annotations are those of its
    infrastructure, where it names none. `ours`: whether a Gateway, by its labels and namespace, is this revision's."""

    config: Callable[[], InjectorConfig | None]
    mesh: Callable[[], MeshConfig]
    proxy_config: Callable[[str, Labels], ProxyConfig]
    proxy_ids: Callable[[str], tuple[int, int]]
    ours: Callable[[Labels, str], bool]
    cluster: str
    revision: str
    copies: bool = True
    compliance_policy: str = ""


class Deployments:
    """Deploys Gateways while it runs. `path` returns the path of the collection of Gateways at the API server, "" while they are not read.

    `committed` is told of every commit, `changed` says that every Gateway may be another one now.
    """

    def __init__(
        self,
        client: ApiClient,
        db: Mesh,
        path: Callable[[], str],
        around: RenderingSurroundings,
        controller: str,
        pace: WatchOptions,
        choose: random.Random,
    ) -> None:
        self._client, self._db, self._path, self._around, self._pace, self._choose = (
            client,
            db,
            path,
            around,
            pace,
            choose,
        )
        self._controller = controller
        self._upkeep: Upkeep[ObjectKey] = Upkeep("deployment of Gateway", self._settle, pace.backoff, choose)
        self._objects = DeployedObjects(client, controller, self._look_at, pace, choose)
        self._metadata: dict[ObjectKey, Plain] = {}
        self._watched: WatchedKeys[Deployment | None] = WatchedKeys(db, all_gateways, deployment, self._upkeep.look_at)
        self._following: asyncio.Task[None] | None = None
        self._kubernetes = 0

    # -- what may have changed -----------------------------------------------------------------------------------------

    def committed(self, hit: Iterable[Node]) -> None:
        """Marks the Gateways that may be deployed otherwise now."""
        self._watched.committed(hit)
        self._follow_gateways()

    def changed(self) -> None:
        """Marks all Gateways."""
        self._watched.changed()

    def _look_at(self, gateway: ObjectKey) -> None:
        self._upkeep.look_at((gateway,))

    def _follow_gateways(self) -> None:
        """Follows what is deployed from the first Gateway on."""
        if self._watched and self._following is None and self._path():
            self._following = asyncio.create_task(self._follow(), name="follow Gateways that are deployed")

    # -- its life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keeps what is deployed as it should be until it is cancelled. Nothing of it is followed before there is a Gateway."""
        try:
            self._watched.start()
            self._follow_gateways()
            await self._upkeep.run()
        finally:
            self._watched.stop()
            self._metadata = {}
            following, self._following = self._following, None
            await cancel_tasks(following)

    async def _follow(self) -> None:
        """Follows the metadata of Gateways, of which the tables have a part alone, and the objects that are deployed."""
        gateways = Informer(
            self._client, WatchedCollection(self._path(), metadata_only=True), self._receive, self._pace, self._choose
        )
        followers = [gateways, *self._objects.followers()]
        tasks = [
            asyncio.create_task(follower.run(), name=f"follow {follower.collection.path}") for follower in followers
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
                    self._look_at(key)

    # -- one Gateway ---------------------------------------------------------------------------------------------------

    async def _settle(self, key: ObjectKey) -> None:
        metadata = self._metadata.get(key)
        if key not in self._watched or metadata is None:
            return
        wanted = self._watched.value(key)
        labels: Labels = metadata.get("labels") or {}
        config = self._around.config()
        if wanted is None or config is None or not self._around.ours(labels, key.namespace):
            return
        try:
            objects = render_gateway(await self._make_input(wanted, metadata, config), config)
        except RenderError as error:
            _log.error("Gateway %s/%s cannot be deployed: %s", *key, error)
            return
        if wanted.fault is not None:
            _log.error("Gateway %s/%s cannot be deployed: %s", *key, wanted.fault.message)
            return
        await self._take_over(key, metadata)
        for made in objects:
            if key not in self._watched:  # it has gone meanwhile
                return
            if not await self._objects.apply(made):
                _log.warning(
                    "Gateway %s/%s: there is a %s %s that nobody deployed for it",
                    *key,
                    made["kind"],
                    made["metadata"]["name"],
                )
        kinds = {made["kind"] for made in objects}
        for place in self._objects.of(key):
            if place.kind in ASKED_FOR and place.kind not in kinds:
                await self._objects.delete(place)

    async def _take_over(self, key: ObjectKey, metadata: Plain) -> None:
        """Says in a Gateway which version of control planes deploys it, unless it says so."""
        if (metadata.get("annotations") or {}).get(CONTROLLER_VERSION) == str(VERSION):
            return
        base, _, plural = self._path().rpartition("/")
        said = {"metadata": {"uid": metadata.get("uid"), "annotations": {CONTROLLER_VERSION: str(VERSION)}}}
        path, query = f"{base}/namespaces/{key.namespace}/{plural}/{key.name}", {"fieldManager": self._controller}
        try:
            await self._client.call("PATCH", path, query, msgspec.json.encode(said), MERGE_PATCH)
        except NotFound:  # it has just gone
            return

    async def _make_input(self, wanted: Deployment, metadata: Plain, config: InjectorConfig) -> GatewayToRender:
        around, namespace = self._around, wanted.gateway.namespace
        labels, annotations = wanted.labels, wanted.annotations
        own = metadata if around.copies else {}
        labels = dict(labels if labels is not None else own.get("labels") or {})
        network = config.value("global", "network")
        if network and NETWORK not in (metadata.get("labels") or {}) and wanted.of.template == "waypoint":
            labels[NETWORK] = network
        if wanted.opts_out and DATAPLANE_MODE not in (metadata.get("labels") or {}):
            labels.setdefault(DATAPLANE_MODE, "none")
        uid, gid = around.proxy_ids(namespace)
        return GatewayToRender(
            metadata=metadata,
            class_name=wanted.class_name,
            template=wanted.of.template,
            managed=wanted.of.label,
            name=wanted.name,
            account=wanted.account,
            service_type=wanted.service_type,
            ports=wanted.ports,
            addresses=wanted.addresses,
            labels=labels,
            annotations=annotations if annotations is not None else own.get("annotations") or {},
            overlays=wanted.overlays,
            proxy_config=around.proxy_config(namespace, {NAME_LABEL: wanted.gateway.name}),
            mesh=around.mesh(),
            cluster=around.cluster,
            revision=around.revision,
            kubernetes=await self._version(),
            uid=uid,
            gid=gid,
            compliance_policy=around.compliance_policy,
        )

    async def _version(self) -> int:
        """Returns the version of the cluster as a number, such as 134 for 1.34."""
        if not self._kubernetes:
            found = msgspec.json.decode(await self._client.call("GET", "/version"))
            major, minor = (_DIGITS.match(str(found.get(field, ""))) for field in ("major", "minor"))
            self._kubernetes = int(major[0]) * 100 + int(minor[0]) if major and minor else 0
        return self._kubernetes

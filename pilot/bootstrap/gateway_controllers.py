"""What is written into the own cluster for objects of the Gateway API and for Ingresses: statuses, classes, and what Gateways are deployed with."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from pilot.bootstrap.kubernetes import Kubernetes
from pilot.bootstrap.webhooks import WebhooksPart
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import GATEWAY_CLASS, INFERENCE_POOL, KUBERNETES_GATEWAY
from pilot.config.kinds.ingress import INGRESS
from pilot.config.kinds.istio import PROXY_CONFIG
from pilot.config.kinds.kubernetes import NAMESPACE
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.config.object import Object, RegistryKey
from pilot.controllers.default_classes import DefaultClasses
from pilot.controllers.deployments import Deployments
from pilot.controllers.deployments import RenderingSurroundings as RenderedWith
from pilot.controllers.revision_tags import DEFAULT, RevisionTags
from pilot.controllers.shadow_services import ShadowServices
from pilot.controllers.statuses import Statuses
from pilot.derive import Node
from pilot.ingest.batch import Commit
from pilot.ingest.decode import DocumentOrigin
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.status.objects import AMBIENT_KINDS, KINDS
from pilot.mesh.tables.database import MESH_CONFIG, Mesh
from pilot.settings import Settings
from webhook.inject.proxy_config import effective

STATUS_LEASE, INGRESS_LOCK, AMBIENT_LEASE = "istio-gateway-status-leader", "istio-leader", "istio-status-leader"
DEPLOYMENT_LEASE, POOL_LEASE = "istio-gateway-deployment", "istio-gateway-inferencepool"
Lead = Callable[[], Awaitable[None]]


class GatewayWriters:
    """Statuses, classes and deployments. `matters` are what a replica does while it leads in them. Nothing is deployed without `webhooks`, whose
    injector has the templates."""

    def __init__(
        self, kubernetes: Kubernetes, settings: Settings, db: Mesh, webhooks: WebhooksPart, choose: random.Random
    ) -> None:
        self._client, self._source, self._pace = kubernetes.client, kubernetes.source, kubernetes.pace
        self._settings, self._db, self._choose = settings, db, choose
        self._revision = settings.ingest.revision or DEFAULT
        self.tags = RevisionTags(self._client, self._revision, settings.mesh.registry.namespace, self._pace, choose)
        enabled = settings.mesh.gateway_api.enabled
        status = enabled and settings.kubernetes.gateway_status
        self._statuses = (
            self._make_statuses(tuple(kind for kind in KINDS if kind != INGRESS.id), self.is_ours) if status else None
        )
        self._of_ingresses = self._make_statuses((INGRESS.id,), lambda row: True)
        ambient = settings.mesh.ambient
        self._of_ambient = (
            self._make_statuses(AMBIENT_KINDS, self.is_ours) if ambient.enabled and ambient.status else None
        )
        makes = enabled and settings.kubernetes.gateway_classes
        self._classes = (
            DefaultClasses(self._client, db, self._path_of_class, self._pace.backoff, choose) if makes else None
        )
        self._webhooks, self._injector = webhooks, webhooks.injector
        deploys = enabled and settings.kubernetes.gateway_deployments and self._injector is not None
        self._deployments = self._make_deployments() if deploys else None
        self._shadows = self._make_shadows() if enabled and settings.mesh.gateway_api.inference else None
        self._tasks: list[asyncio.Task[None]] = []

    def _make_deployments(self) -> Deployments:
        around, injector, registry = self._webhooks.surroundings, self._injector, self._settings.mesh.registry
        surroundings = RenderedWith(
            config=lambda: injector.config if injector is not None else None,
            mesh=around.mesh,
            proxy_config=self._proxy_config,
            proxy_ids=around.proxy_ids,
            ours=self._is_ours,
            cluster=registry.cluster_id,
            revision=self._settings.ingest.revision,
            copies=self._settings.kubernetes.gateway_metadata,
            compliance_policy=around.compliance_policy,
        )
        path = lambda: self._source.path_of(KUBERNETES_GATEWAY.id, "", "x").removesuffix("/x")  # noqa: E731
        controller = self._settings.mesh.gateway_api.controller
        return Deployments(self._client, self._db, path, surroundings, controller, self._pace, self._choose)

    def _make_shadows(self) -> ShadowServices:
        path = lambda key: self._source.path_of(INFERENCE_POOL.id, *key)  # noqa: E731
        return ShadowServices(self._client, self._db, path, self.is_ours, self._pace.backoff, self._choose)

    def _proxy_config(self, namespace: str, labels: Mapping[str, str]) -> ProxyConfig:
        """Returns the proxy config of pods of a namespace with some labels."""
        mesh = self._webhooks.surroundings.mesh()
        return effective(
            mesh.default_config,
            self._webhooks.surroundings.proxy_configs(),
            mesh.root_namespace,
            namespace,
            labels,
            None,
        )

    def _make_statuses(self, kinds: tuple[GroupKind, ...], is_ours: Callable[[Object[Any]], bool]) -> Statuses:
        origin = DocumentOrigin(self._settings.mesh.registry.cluster_id, True, self._settings.ingest.revision)
        path = lambda ref: self._source.path_of(*ref)  # noqa: E731
        return Statuses(self._client, self._db, kinds, path, is_ours, origin, self._pace.backoff, self._choose)

    def is_ours(self, row: Object[Any]) -> bool:
        """Returns whether an object is this revision's; one of the whole cluster is everybody's."""
        return not row.namespace or self._is_ours(row.labels, row.namespace)

    def _is_ours(self, labels: Mapping[str, str], namespace: str) -> bool:
        found = NAMESPACE.table(self._db).peek(RegistryKey(self._settings.mesh.registry.cluster_id, "", namespace))
        return self.tags.is_ours(labels, found.labels if found is not None else None)

    async def start(self) -> None:
        """Begins to follow the tags of revisions, and to make classes."""
        for statuses in (self._statuses, self._of_ambient):
            if statuses is not None:
                self.tags.on_change.append(statuses.looked_again)
        if self._deployments is not None and self._injector is not None:
            self.tags.on_change.append(self._deployments.changed)
            self._injector.on_take.append(self._deployments.changed)
        if self._shadows is not None:
            self.tags.on_change.append(self._shadows.changed)
        await self.tags.start()
        if self._classes is not None:
            self._source.on_follow.append(_for_classes(self._classes))
            self._tasks.append(asyncio.create_task(self._classes.run(), name="make classes of gateways"))

    async def stop(self) -> None:
        """Writes nothing any more."""
        await cancel_tasks(*self._tasks)
        await self.tags.stop()

    def committed(self, commit: Commit) -> None:
        """Called when a batch of changes is in the tables."""
        tables = {table for table, _, _ in commit.edits}
        if self._classes is not None and GATEWAY_CLASS.table_name in tables:
            self._classes.changed()
        for statuses in (self._statuses, self._of_ingresses, self._of_ambient):
            if statuses is not None:
                statuses.committed(commit.hit, commit.edits)
                if statuses is not self._of_ingresses and NAMESPACE.table_name in tables:
                    statuses.looked_again()
        if self._deployments is not None:
            self._deployments.committed(commit.hit)
            if tables & {NAMESPACE.table_name, MESH_CONFIG, PROXY_CONFIG.table_name}:
                self._deployments.changed()
        if self._shadows is not None:
            self._shadows.committed(commit.hit)

    def reached(self, nodes: Iterable[Node]) -> None:
        """Called when rows that follow from streams are in the tables."""
        if self._statuses is not None:
            self._statuses.committed(nodes, ())

    def matters(self) -> Iterator[tuple[str, Lead]]:
        """Yields the name of each Lease, and what its holder does."""
        yield INGRESS_LOCK, self._of_ingresses.run
        if self._statuses is not None:
            yield f"{STATUS_LEASE}-{self._revision}", self._after_tags(self._statuses.run)
        if self._of_ambient is not None:
            yield AMBIENT_LEASE, self._after_tags(self._of_ambient.run)
        if self._deployments is not None:
            yield f"{DEPLOYMENT_LEASE}-{self._revision}", self._after_tags(self._deployments.run)
        if self._shadows is not None:
            yield f"{POOL_LEASE}-{self._revision}", self._after_tags(self._shadows.run)

    def _after_tags(self, lead: Lead) -> Lead:
        """Returns what begins once the tags are known, by which revisions tell objects apart."""

        async def run() -> None:
            await self.tags.synced()
            await lead()

        return run

    def _path_of_class(self, name: str) -> str:
        return self._source.path_of(GATEWAY_CLASS.id, "", name)


def _for_classes(classes: DefaultClasses) -> Callable[[GroupKind], None]:
    """Returns what is to be told of each kind once it is followed, so that classes are made where there can be any."""

    def followed(kind: GroupKind) -> None:
        if kind == GATEWAY_CLASS.id:
            classes.changed()

    return followed

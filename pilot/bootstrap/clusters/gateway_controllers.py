"""Controllers for the Gateway API, Ingresses and ambient mode. They write statuses, GatewayClasses and deployments."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from pilot.bootstrap.clusters.api_servers import ApiServers
from pilot.bootstrap.webhooks import WebhookParts
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import GATEWAY_CLASS, INFERENCE_POOL, KUBERNETES_GATEWAY
from pilot.config.kinds.istio import PROXY_CONFIG
from pilot.config.kinds.kubernetes import INGRESS, NAMESPACE
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.config.object import Object, RegistryKey
from pilot.controllers.gateway_class_controller import GatewayClassController
from pilot.controllers.gateway_deployments import GatewayDeploymentController, RenderingContext
from pilot.controllers.revision_tags import DEFAULT, RevisionTags
from pilot.controllers.shadow_service_controller import ShadowServiceController
from pilot.controllers.status_controller import StatusController
from pilot.derive import Node
from pilot.ingest.batch import Commit
from pilot.ingest.decode import DocumentOrigin
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.status.object_status import AMBIENT_KINDS, KINDS
from pilot.mesh.tables.database import MESH_CONFIG, Mesh
from pilot.settings import Settings
from webhook.inject.proxy_config import effective

STATUS_LEASE, INGRESS_LOCK, AMBIENT_LEASE = "istio-gateway-status-leader", "istio-leader", "istio-status-leader"
DEPLOYMENT_LEASE, POOL_LEASE = "istio-gateway-deployment", "istio-gateway-inferencepool"
Lead = Callable[[], Awaitable[None]]


class GatewayControllers:
    """Controllers that write gateway objects and statuses into the local cluster.

    `elections` yields those that run only on the leader. Gateways are deployed only if the injector is enabled, because
    it has the templates.
    """

    def __init__(
        self, api_servers: ApiServers, settings: Settings, db: Mesh, webhooks: WebhookParts, rng: random.Random
    ) -> None:
        self._client, self._source, self._options = api_servers.client, api_servers.source, api_servers.watch_options
        self._problems = api_servers.problems
        self._settings, self._db, self._rng = settings, db, rng
        self._revision = settings.ingest.revision or DEFAULT
        self.tags = RevisionTags(self._client, self._revision, settings.mesh.registry.namespace, self._options, rng)
        enabled = settings.mesh.gateway_api.enabled
        writes_status = enabled and settings.kubernetes.gateway_status
        gateway_kinds = tuple(kind for kind in KINDS if kind != INGRESS.id)
        self._gateway_status = self._build_status(gateway_kinds, self.is_ours) if writes_status else None
        self._ingress_status = self._build_status((INGRESS.id,), lambda row: True)
        ambient = settings.mesh.ambient
        self._ambient_status = (
            self._build_status(AMBIENT_KINDS, self.is_ours) if ambient.enabled and ambient.status else None
        )
        creates_classes = enabled and settings.kubernetes.gateway_classes
        self._classes = (
            GatewayClassController(self._client, db, self._path_of_class, self._options.backoff, rng)
            if creates_classes
            else None
        )
        self._webhooks, self._injector = webhooks, webhooks.injector
        deploys = enabled and settings.kubernetes.gateway_deployments and self._injector is not None
        self._deployments = self._build_deployments() if deploys else None
        self._shadow_services = (
            self._build_shadow_services() if enabled and settings.mesh.gateway_api.inference else None
        )
        self._tasks: list[asyncio.Task[None]] = []

    def _build_deployments(self) -> GatewayDeploymentController:
        injection, injector, registry = self._webhooks.context, self._injector, self._settings.mesh.registry
        context = RenderingContext(
            config=lambda: injector.config if injector is not None else None,
            mesh=injection.mesh,
            proxy_config=self._proxy_config,
            render=self._webhooks.reviewers.render,
            proxy_ids=injection.proxy_ids,
            is_ours=self._belongs_to_us,
            cluster=registry.cluster_id,
            revision=self._settings.ingest.revision,
            copies_metadata=self._settings.kubernetes.gateway_metadata,
            compliance_policy=injection.compliance_policy,
        )
        collection = lambda: self._source.path_of(KUBERNETES_GATEWAY.id, "", "x").removesuffix("/x")  # noqa: E731
        controller = self._settings.mesh.gateway_api.controller
        return GatewayDeploymentController(
            self._client, self._db, collection, context, controller, self._problems, self._options, self._rng
        )

    def _build_shadow_services(self) -> ShadowServiceController:
        path_of = lambda key: self._source.path_of(INFERENCE_POOL.id, *key)  # noqa: E731
        return ShadowServiceController(self._client, self._db, path_of, self.is_ours, self._options.backoff, self._rng)

    async def _proxy_config(self, namespace: str, labels: Mapping[str, str]) -> ProxyConfig:
        """Return the ProxyConfig of the pods with some labels in a namespace."""
        mesh = self._webhooks.context.mesh()
        return effective(
            mesh.default_config,
            await self._webhooks.context.proxy_configs(namespace, labels),
            mesh.root_namespace,
            namespace,
            labels,
            None,
        )

    def _build_status(self, kinds: tuple[GroupKind, ...], is_ours: Callable[[Object[Any]], bool]) -> StatusController:
        origin = DocumentOrigin(self._settings.mesh.registry.cluster_id, True, self._settings.ingest.revision)
        path_of = lambda ref: self._source.path_of(*ref)  # noqa: E731
        return StatusController(
            self._client, self._db, kinds, path_of, is_ours, origin, self._options.backoff, self._rng
        )

    def is_ours(self, row: Object[Any]) -> bool:
        """Return whether an object belongs to this revision. Cluster-scoped objects belong to every revision."""
        return not row.namespace or self._belongs_to_us(row.labels, row.namespace)

    def _belongs_to_us(self, labels: Mapping[str, str], namespace: str) -> bool:
        row = NAMESPACE.table(self._db).peek(RegistryKey(self._settings.mesh.registry.cluster_id, "", namespace))
        return self.tags.is_ours(labels, row.labels if row is not None else None)

    async def start(self) -> None:
        """Start watching revision tags and creating GatewayClasses."""
        for status in (self._gateway_status, self._ambient_status):
            if status is not None:
                self.tags.on_change.append(status.resync)
        if self._deployments is not None and self._injector is not None:
            self.tags.on_change.append(self._deployments.resync)
            self._injector.on_load.append(self._deployments.resync)
        if self._shadow_services is not None:
            self.tags.on_change.append(self._shadow_services.resync)
        await self.tags.start()
        if self._classes is not None:
            self._source.on_watch.append(_resync_on_class(self._classes))
            self._tasks.append(asyncio.create_task(self._classes.run(), name="create GatewayClasses"))

    async def stop(self) -> None:
        """Stop writing."""
        await cancel_tasks(*self._tasks)
        await self.tags.stop()

    def on_commit(self, commit: Commit) -> None:
        """Handle a committed batch of changes."""
        tables = {table for table, _, _ in commit.edits}
        if self._classes is not None and GATEWAY_CLASS.table_name in tables:
            self._classes.resync()
        for status in (self._gateway_status, self._ingress_status, self._ambient_status):
            if status is not None:
                status.on_commit(commit.hit, commit.edits)
                if status is not self._ingress_status and NAMESPACE.table_name in tables:
                    status.resync()
        if self._deployments is not None:
            self._deployments.on_commit(commit.hit)
            if tables & {NAMESPACE.table_name, MESH_CONFIG, PROXY_CONFIG.table_name}:
                self._deployments.resync()
        if self._shadow_services is not None:
            self._shadow_services.on_commit(commit.hit)

    def on_stream_commit(self, nodes: Iterable[Node]) -> None:
        """Handle a commit of rows that come from xDS streams, such as connected proxies."""
        if self._gateway_status is not None:
            self._gateway_status.on_commit(nodes, ())

    def elections(self) -> Iterator[tuple[str, Lead]]:
        """Yield the name of each lock, and the function to run while this replica holds it."""
        yield INGRESS_LOCK, self._ingress_status.run
        if self._gateway_status is not None:
            yield f"{STATUS_LEASE}-{self._revision}", self._after_tags(self._gateway_status.run)
        if self._ambient_status is not None:
            yield AMBIENT_LEASE, self._after_tags(self._ambient_status.run)
        if self._deployments is not None:
            yield f"{DEPLOYMENT_LEASE}-{self._revision}", self._after_tags(self._deployments.run)
        if self._shadow_services is not None:
            yield f"{POOL_LEASE}-{self._revision}", self._after_tags(self._shadow_services.run)

    def _after_tags(self, lead: Lead) -> Lead:
        """Return a function that runs `lead` once the revision tags are known."""

        async def run() -> None:
            await self.tags.synced()
            await lead()

        return run

    def _path_of_class(self, name: str) -> str:
        return self._source.path_of(GATEWAY_CLASS.id, "", name)


def _resync_on_class(classes: GatewayClassController) -> Callable[[GroupKind], None]:
    """Return a listener that creates GatewayClasses when the kind becomes available."""

    def on_watch(kind: GroupKind) -> None:
        if kind == GATEWAY_CLASS.id:
            classes.resync()

    return on_watch

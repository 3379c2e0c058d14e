"""Controllers of the local cluster and of remote clusters. Most of them run only while this replica is the leader."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from pilot.bootstrap.clusters.api_servers import ApiServers
from pilot.bootstrap.clusters.gateway_controllers import INGRESS_LOCK, GatewayControllers
from pilot.bootstrap.clusters.remote_controllers import ClusterControllers, RemoteControllers
from pilot.bootstrap.security.signed_certificate import ServerIdentity
from pilot.bootstrap.webhooks import WebhookParts
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.object import Object, ObjectKey
from pilot.controllers.analysis_status import AnalysisStatusController
from pilot.controllers.ca_bundles import MUTATING, VALIDATING, CaBundleController
from pilot.controllers.cluster_trust_bundle import TrustBundleController
from pilot.controllers.delivery_status import Count, DeliveryStatusController, count_other_replicas
from pilot.controllers.leader_priority import REMOTE_PREFIX, LeaderPriority
from pilot.controllers.node_taints import NodeTaintController
from pilot.controllers.reconciler import Controller, ControllerGroup
from pilot.controllers.registration_in_cluster import ClusterRegistration, ClusterRegistrationOptions
from pilot.controllers.root_certificates import RootCertificateController
from pilot.controllers.service_entry_addresses import AutoAddressController
from pilot.controllers.service_exports import ServiceExportController
from pilot.derive import Node
from pilot.ingest.batch import Commit
from pilot.ingest.problems import ProblemStore
from pilot.kube.api_client import ApiClient
from pilot.kube.leader_election import LeaderElection, LeaseDurations
from pilot.kube.leader_lock import CONFIG_MAP, LEASE, Lock
from pilot.lib.backoff import RetryDelays
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.model.visibility import NAMESPACE_NAME_LABEL, selects
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.tables.clusters import cluster_local_hosts, is_local
from pilot.mesh.tables.database import MESH_CONFIG, Mesh
from pilot.settings import Settings

ROOTS_LOCK, ADDRESSES_LOCK = "istio-namespace-controller-election", "istio-ip-autoallocate"
ANALYSIS_LOCK, TAINTS_LOCK = "istio-analyze-leader", "istio-node-untaint"
EXPORTS_LOCK, DELIVERY_LEASE = "istio-serviceexport-controller-election", "istio-delivery-status-leader"
SHARED_LOCKS = frozenset({ROOTS_LOCK, ADDRESSES_LOCK, ANALYSIS_LOCK, TAINTS_LOCK, EXPORTS_LOCK, INGRESS_LOCK})
"""Locks that all revisions share. They are ConfigMaps, and the default revision has priority. All other locks are
Leases."""
MIN_INTERVAL, DEFAULT_INTERVAL = 1.0, 10.0


class Controllers:
    """All controllers. `start` and `stop` it once.

    Each controller runs while this replica holds the controller's lock. `registration` and the CA bundle controller
    need no lock. `count_delivery` returns how many proxies have the last change of an object.
    """

    def __init__(
        self,
        api_servers: ApiServers,
        settings: Settings,
        db: Mesh,
        identity: ServerIdentity | None,
        webhooks: WebhookParts,
        count_delivery: Count,
        durations: LeaseDurations = LeaseDurations(),
    ) -> None:
        self._client, self._source, self._metrics = api_servers.client, api_servers.source, api_servers.metrics
        self._caller_client = api_servers.caller_client
        self._options, self._rng = api_servers.watch_options, random.Random()
        self._settings, self._db, self._identity, self._durations = settings, db, identity, durations
        self._revision = settings.ingest.revision or "default"
        self._replica = settings.process.pod_name or f"pyistiod-{self._rng.getrandbits(48):012x}"
        self._roots = self._build_roots(self._client) if identity is not None else None
        reads_configuration = not settings.ingest.config_dirs
        allocates = settings.mesh.registry.ip_autoallocate and reads_configuration
        self._addresses = (
            AutoAddressController(self._client, db, self._path_of_entry, self._options.backoff, self._rng)
            if allocates
            else None
        )
        analyzes = settings.kubernetes.analysis and reads_configuration
        self._analysis = self._build_analysis(api_servers.problems) if analyzes else None
        reports = settings.kubernetes.delivery_status and reads_configuration
        self._deliveries = self._build_deliveries(count_delivery) if reports else None
        self._bundles = self._build_bundles() if identity is not None else None
        registers = settings.kubernetes.registration and reads_configuration
        self.registration = self._build_registration() if registers else None
        self._gateways = (
            GatewayControllers(api_servers, settings, db, webhooks, self._rng) if reads_configuration else None
        )
        self._priority = LeaderPriority(self._client, self._revision, self._options, self._rng)
        self._has_started = asyncio.Event()
        self._exports = self._build_exports() if settings.kubernetes.auto_export else None
        self._taints = self._build_taints() if settings.kubernetes.untaint_nodes else None
        self._remote = self._build_remote() if settings.kubernetes.external and identity is not None else None
        self._tasks: list[asyncio.Task[None]] = []

    # -- construction --------------------------------------------------------------------------------------------------

    def _build_analysis(self, problems: ProblemStore) -> AnalysisStatusController:
        configured = self._settings.kubernetes.analysis_interval.seconds
        interval = configured if configured >= MIN_INTERVAL else DEFAULT_INTERVAL
        source = self._source
        return AnalysisStatusController(
            self._client,
            problems,
            lambda ref: source.path_of(*ref),
            lambda: tuple(source.watches),
            interval,
            self._options.backoff,
            self._rng,
        )

    def _build_deliveries(self, count: Count) -> DeliveryStatusController:
        client, source, namespace = self._client, self._source, self._settings.mesh.registry.namespace
        return DeliveryStatusController(
            client,
            count,
            lambda: count_other_replicas(client, namespace, self._revision, self._settings.process.pod_name),
            lambda ref: source.path_of(*ref),
            lambda: tuple(source.watches),
            self._options.backoff,
            self._rng,
        )

    def _build_taints(self) -> NodeTaintController:
        kubernetes = self._settings.kubernetes
        namespace = kubernetes.cni_namespace or self._settings.mesh.registry.namespace
        return NodeTaintController(self._client, namespace, kubernetes.taint, self._options, self._rng)

    def _build_exports(self) -> ServiceExportController:
        db, domain, node = self._db, self._settings.mesh.registry.domain, self._db.watch(cluster_local_hosts)

        def is_cluster_local(namespace: str, name: str) -> bool:
            db.refresh(node)
            return is_local(node.value, kubernetes_hostname(name, namespace, domain))

        api_version = f"{self._settings.kubernetes.mcs_group}/{self._settings.kubernetes.mcs_version}"
        return ServiceExportController(self._client, api_version, is_cluster_local, self._options, self._rng)

    def _build_remote(self) -> RemoteControllers:
        registry = self._settings.mesh.registry
        new_delays = functools.partial(RetryDelays, self._options.backoff, self._rng)
        return RemoteControllers(
            registry.cluster_id,
            registry.namespace,
            self._build_cluster_controllers,
            self._lead_remote,
            self._has_started,
            new_delays,
        )

    def _build_cluster_controllers(self, client: ApiClient) -> ClusterControllers:
        """Return the controllers of a remote cluster."""
        bundles = CaBundleController(
            client,
            self._settings.ingest.revision,
            self._settings.mesh.registry.namespace,
            self._roots_pem,
            [MUTATING],
            self._options,
            self._rng,
            self._metrics,
        )
        has_webhooks = bool(self._settings.kubernetes.injection_webhook)
        return ClusterControllers(self._build_roots(client), bundles if has_webhooks else None)

    def _build_roots(self, client: ApiClient) -> Controller:
        """Return the controller that writes root certificates into a cluster, so that pods can mount them."""
        maps = RootCertificateController(client, self._desired_maps, self._is_selected, self._options, self._rng)
        if not self._settings.kubernetes.trust_bundle:
            return maps
        return ControllerGroup(maps, TrustBundleController(client, self._roots_pem, self._options, self._rng))

    def _build_bundles(self) -> CaBundleController | None:
        """Return the controller that writes CA bundles into webhook configurations, or None if it is disabled."""
        kubernetes, namespace = self._settings.kubernetes, self._settings.mesh.registry.namespace
        webhooks = ((MUTATING, kubernetes.injection_webhook), (VALIDATING, kubernetes.validation_webhook))
        kinds = [kind for kind, name in webhooks if name]
        if not kinds:
            return None
        return CaBundleController(
            self._client,
            self._settings.ingest.revision,
            namespace,
            self._roots_pem,
            kinds,
            self._options,
            self._rng,
            self._metrics,
        )

    def _build_registration(self) -> ClusterRegistration:
        kubernetes = self._settings.kubernetes
        options = ClusterRegistrationOptions(
            self._replica, kubernetes.registration_grace.seconds, identity_check=kubernetes.registration_identity
        )
        return ClusterRegistration(
            self._caller_client,
            self._db,
            self._source.path_of,
            options,
            self._options.backoff,
            self._rng,
            self._metrics,
        )

    # -- life cycle ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start competing for leadership."""
        self._has_started.set()
        if self._identity is not None:
            self._identity.on_change += [
                controller.resync for controller in (self._remote, self._roots, self._bundles) if controller is not None
            ]
        if self._bundles is not None:
            self._tasks.append(asyncio.create_task(self._bundles.run(), name="write CA bundles in webhooks"))
        if self.registration is not None:
            await self.registration.start()
        if self._gateways is not None:
            await self._gateways.start()
        if self._settings.kubernetes.leader_election:
            await self._priority.start()
        self._tasks += [
            asyncio.create_task(self._lead(name, lead), name=f"election {name}") for name, lead in self._elections()
        ]

    async def stop(self) -> None:
        """Stop writing, and release all locks."""
        await cancel_tasks(*self._tasks)
        if self._gateways is not None:
            await self._gateways.stop()
        await self._priority.stop()
        if self.registration is not None:
            await self.registration.stop()

    async def run_remote(self, cluster: str, client: ApiClient) -> None:
        """Run the controllers of a remote cluster until cancelled. Return if there are none."""
        if self._remote is not None:
            await self._remote.run(cluster, client)

    def on_commit(self, commit: Commit) -> None:
        """Handle a committed batch of changes."""
        tables = {table for table, _, _ in commit.edits}
        if self._roots is not None and MESH_CONFIG in tables:
            self._roots.resync()
        if self._remote is not None and MESH_CONFIG in tables:
            self._remote.resync()
        if self._addresses is not None and SERVICE_ENTRY.table_name in tables:
            self._addresses.resync()
        if self._gateways is not None:
            self._gateways.on_commit(commit)
        for status in (self._analysis, self._deliveries):
            if status is not None:
                status.on_edit(row.ref for _, _, row in commit.edits if isinstance(row, Object))

    def on_stream_commit(self, nodes: Iterable[Node]) -> None:
        """Handle a commit of rows that come from xDS streams, such as connected proxies."""
        if self._gateways is not None:
            self._gateways.on_stream_commit(nodes)

    # -- leadership ----------------------------------------------------------------------------------------------------

    def _elections(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """Yield the name of each lock, and the function to run while this replica holds it."""
        if self._roots is not None:
            yield ROOTS_LOCK, self._roots.run
        if self._addresses is not None:
            yield ADDRESSES_LOCK, self._addresses.run
        if self._analysis is not None:
            yield ANALYSIS_LOCK, self._analysis.run
        if self._deliveries is not None:
            yield DELIVERY_LEASE, self._deliveries.run
        if self._exports is not None:
            yield EXPORTS_LOCK, self._exports.run
        if self._taints is not None:
            yield TAINTS_LOCK, self._taints.run
        if self._gateways is not None:
            yield from self._gateways.elections()

    async def _lead(self, name: str, lead: Callable[[], Awaitable[None]]) -> None:
        if not self._settings.kubernetes.leader_election:
            await lead()
            return
        namespace = self._settings.mesh.registry.namespace
        if name not in SHARED_LOCKS:
            await LeaderElection(Lock(self._client, LEASE, namespace, name), self._replica, self._durations).run(lead)
            return
        lock, priority = Lock(self._client, CONFIG_MAP, namespace, name), self._priority
        await LeaderElection(lock, self._replica, self._durations, priority.key, priority.outranks).run(lead)

    async def _lead_remote(self, client: ApiClient, roots: Controller) -> None:
        """Write root certificates into a remote cluster while this replica leads there."""
        if not self._settings.kubernetes.leader_election:
            await roots.run()
            return
        priority = LeaderPriority(client, f"{REMOTE_PREFIX}{self._revision}", self._options, self._rng)
        lock = Lock(client, CONFIG_MAP, self._settings.mesh.registry.namespace, ROOTS_LOCK)
        await priority.start()
        try:
            await LeaderElection(lock, self._replica, self._durations, priority.key, priority.outranks).run(roots.run)
        finally:
            await priority.stop()

    # -- data for the controllers --------------------------------------------------------------------------------------

    def _roots_pem(self) -> str:
        """Return the root certificates with which proxies verify the control plane, or "" if there are none yet."""
        return self._identity.roots_pem().decode() if self._identity is not None else ""

    def _desired_maps(self) -> Mapping[str, Mapping[str, str]]:
        """Return the data of the ConfigMaps to write into every namespace, keyed by name.

        The result is empty until a root certificate exists.
        """
        kubernetes, identity = self._settings.kubernetes, self._identity
        if identity is None or not identity.roots_pem():
            return {}
        maps = {} if kubernetes.trust_bundle else {kubernetes.roots_map: {"root-cert.pem": self._roots_pem()}}
        return maps | ({kubernetes.crl_map: {"ca-crl.pem": identity.crl.decode()}} if kubernetes.crl else {})

    def _is_selected(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a namespace is watched and matches the discovery selectors of the mesh config."""
        if self._settings.kubernetes.watched_namespace not in ("", namespace):
            return False
        config = self._db.mesh.peek("mesh")
        selectors = config.discovery_selectors if isinstance(config, MeshConfig) else ()
        return not selectors or any(
            selects(selector, {NAMESPACE_NAME_LABEL: namespace, **labels}) for selector in selectors
        )

    def _path_of_entry(self, key: ObjectKey) -> str:
        return self._source.path_of(SERVICE_ENTRY.id, key.namespace, key.name)

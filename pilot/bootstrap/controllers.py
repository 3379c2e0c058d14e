"""What is written into the own cluster, by whichever replica leads."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from pilot.bootstrap.gateway_controllers import INGRESS_LOCK, GatewayWriters
from pilot.bootstrap.kubernetes import Kubernetes
from pilot.bootstrap.remote_controllers import RemoteWriters, WrittenCluster
from pilot.bootstrap.signed_certificate import Trust
from pilot.bootstrap.webhooks import WebhooksPart
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.object import Object, ObjectKey
from pilot.controllers.analysis import Analysis
from pilot.controllers.auto_addresses import AutoAddresses
from pilot.controllers.ca_bundles import MUTATING, VALIDATING, CaBundles
from pilot.controllers.node_taints import NodeTaints
from pilot.controllers.precedence import OUTSIDE, Precedence
from pilot.controllers.root_certificates import RootCertificates
from pilot.controllers.service_exports import ServiceExports
from pilot.controllers.trust_bundle import Together, TrustBundle, Writer
from pilot.controllers.workload_entries import EntryTerms, WorkloadEntries
from pilot.derive import Node
from pilot.ingest.batch import Commit
from pilot.ingest.problems import ProblemStore
from pilot.kube.client import ApiClient
from pilot.kube.informer import WatchOptions
from pilot.kube.leader_election import LeaderElection, LeaseDurations
from pilot.kube.leader_lock import CONFIG_MAP, LEASE, Lock
from pilot.lib.backoff import Backoff, RetryDelays
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.model.visibility import NAMESPACE_NAME_LABEL, selects
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.tables.cluster_local import cluster_local_hosts, is_local
from pilot.mesh.tables.database import MESH_CONFIG, Mesh
from pilot.settings import Settings

ROOTS_LOCK, ADDRESSES_LOCK = "istio-namespace-controller-election", "istio-ip-autoallocate"
ANALYSIS_LOCK, TAINTS_LOCK = "istio-analyze-leader", "istio-node-untaint"
EXPORTS_LOCK = "istio-serviceexport-controller-election"
OF_ALL_REVISIONS = frozenset({ROOTS_LOCK, ADDRESSES_LOCK, ANALYSIS_LOCK, TAINTS_LOCK, EXPORTS_LOCK, INGRESS_LOCK})
"""Locks that are ConfigMaps, for which the default revision has precedence. The others are Leases."""
SHORTEST_INTERVAL, USUAL_INTERVAL = 1.0, 10.0


class Writers:
    """Everything that writes to API servers, each part while this replica leads in its matter, but `entries` and the roots in webhook
    configurations always. `start` and `stop` once."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        settings: Settings,
        db: Mesh,
        authority: Trust | None,
        webhooks: WebhooksPart,
        terms: LeaseDurations = LeaseDurations(),
    ) -> None:
        self._client, self._source, pace, self._counts = (
            kubernetes.client,
            kubernetes.source,
            kubernetes.pace,
            kubernetes.counts,
        )
        self._settings, self._db, self._authority = settings, db, authority
        self._terms, self._choose = terms, random.Random()
        self._replica = settings.process.pod_name or f"pyistiod-{self._choose.getrandbits(48):012x}"
        self._roots = self._make_roots(self._client, pace) if authority is not None else None
        owns_configuration = not settings.ingest.config_dirs
        allocates = settings.mesh.registry.ip_autoallocate and owns_configuration
        self._addresses = (
            AutoAddresses(self._client, db, self._path_of_entry, pace.backoff, self._choose) if allocates else None
        )
        self._analysis = (
            self._make_analysis(kubernetes.problems, pace.backoff)
            if settings.kubernetes.analysis and owns_configuration
            else None
        )
        self._bundles = self._make_bundles(pace) if authority is not None else None
        self.entries = (
            self._make_entries(pace.backoff)
            if settings.kubernetes.registration and not settings.ingest.config_dirs
            else None
        )
        self._gateways = (
            GatewayWriters(kubernetes, settings, db, webhooks, self._choose) if owns_configuration else None
        )
        self._revision = settings.ingest.revision or "default"
        self._precedence = Precedence(self._client, self._revision, pace, self._choose)
        self._pace, self._has_started = pace, asyncio.Event()
        self._exports = self._make_exports() if settings.kubernetes.auto_export else None
        self._taints = self._make_taints() if settings.kubernetes.untaint_nodes else None
        self._remote = self._make_remote() if settings.kubernetes.external and authority is not None else None
        if self._remote is not None:
            kubernetes.beside = self._remote.run
        self._tasks: list[asyncio.Task[None]] = []

    def _make_analysis(self, problems: ProblemStore, backoff: Backoff) -> Analysis:
        asked = self._settings.kubernetes.analysis_interval.seconds
        interval = asked if asked >= SHORTEST_INTERVAL else USUAL_INTERVAL
        source = self._source
        return Analysis(
            self._client,
            problems,
            lambda ref: source.path_of(*ref),
            lambda: tuple(source.followed),
            interval,
            backoff,
            self._choose,
        )

    def _make_taints(self) -> NodeTaints:
        kubernetes = self._settings.kubernetes
        namespace = kubernetes.cni_namespace or self._settings.mesh.registry.namespace
        return NodeTaints(self._client, namespace, kubernetes.taint, self._pace, self._choose)

    def _make_exports(self) -> ServiceExports:
        db, domain, node = self._db, self._settings.mesh.registry.domain, self._db.watch(cluster_local_hosts)

        def stays(namespace: str, name: str) -> bool:
            db.refresh(node)
            return is_local(node.value, kubernetes_hostname(name, namespace, domain))

        return ServiceExports(self._client, stays, self._pace, self._choose)

    def _make_remote(self) -> RemoteWriters:
        registry = self._settings.mesh.registry
        attempts = functools.partial(RetryDelays, self._pace.backoff, self._choose)
        return RemoteWriters(
            registry.cluster_id, registry.namespace, self._of_remote, self._leading_remote, self._has_started, attempts
        )

    def _of_remote(self, client: ApiClient) -> WrittenCluster:
        """Returns what is written into another cluster."""
        namespace, has_webhooks = (
            self._settings.mesh.registry.namespace,
            bool(self._settings.kubernetes.injection_webhook),
        )
        common = (self._pace, self._choose)
        bundles = CaBundles(
            client, self._settings.ingest.revision, namespace, self._roots_pem, [MUTATING], *common, self._counts
        )
        return WrittenCluster(self._make_roots(client, self._pace), bundles if has_webhooks else None)

    def _make_roots(self, client: ApiClient, pace: WatchOptions) -> Writer:
        """Returns what writes the roots into a cluster, where pods find them."""
        maps = RootCertificates(client, self._wanted_roots, self._selected, pace, self._choose)
        if not self._settings.kubernetes.trust_bundle:
            return maps
        return Together(maps, TrustBundle(client, self._roots_pem, pace, self._choose))

    async def _leading_remote(self, client: ApiClient, roots: Writer) -> None:
        """Has the roots written into another cluster while we lead there."""
        if not self._settings.kubernetes.leader_election:
            await roots.run()
            return
        precedence = Precedence(client, f"{OUTSIDE}{self._revision}", self._pace, self._choose)
        lock = Lock(client, CONFIG_MAP, self._settings.mesh.registry.namespace, ROOTS_LOCK)
        await precedence.start()
        try:
            await LeaderElection(lock, self._replica, self._terms, precedence.key, precedence.outranks).run(roots.run)
        finally:
            await precedence.stop()

    def _make_bundles(self, pace: WatchOptions) -> CaBundles | None:
        """Returns what writes the roots into webhook configurations; None where that is switched off."""
        kubernetes, namespace = self._settings.kubernetes, self._settings.mesh.registry.namespace
        wanted = ((MUTATING, kubernetes.injection_webhook), (VALIDATING, kubernetes.validation_webhook))
        kinds = [kind for kind, name in wanted if name]
        if not kinds:
            return None
        return CaBundles(
            self._client,
            self._settings.ingest.revision,
            namespace,
            self._roots_pem,
            kinds,
            pace,
            self._choose,
            self._counts,
        )

    def _roots_pem(self) -> str:
        """Returns the roots by which proxies trust the control plane, "" before there are any."""
        return self._authority.roots_pem().decode() if self._authority is not None else ""

    def _make_entries(self, backoff: Backoff) -> WorkloadEntries:
        kubernetes = self._settings.kubernetes
        terms = EntryTerms(
            self._replica, kubernetes.registration_grace.seconds, identity_check=kubernetes.registration_identity
        )
        return WorkloadEntries(self._client, self._db, self._source.path_of, terms, backoff, self._choose, self._counts)

    async def start(self) -> None:
        """Begins to wait for leadership."""
        self._has_started.set()
        if self._authority is not None:
            self._authority.on_change += [
                part.changed for part in (self._remote, self._roots, self._bundles) if part is not None
            ]
        if self._bundles is not None:
            self._tasks.append(asyncio.create_task(self._bundles.run(), name="write roots into webhook configurations"))
        if self.entries is not None:
            await self.entries.start()
        if self._gateways is not None:
            await self._gateways.start()
        if self._settings.kubernetes.leader_election:
            await self._precedence.start()
        self._tasks += [
            asyncio.create_task(self._leading(name, lead), name=f"election {name}") for name, lead in self._matters()
        ]

    async def stop(self) -> None:
        """Writes nothing any more, and gives leadership back."""
        await cancel_tasks(*self._tasks)
        if self._gateways is not None:
            await self._gateways.stop()
        await self._precedence.stop()
        if self.entries is not None:
            await self.entries.stop()

    def committed(self, commit: Commit) -> None:
        """Called when a batch of changes is in the tables."""
        tables = {table for table, _, _ in commit.edits}
        if self._roots is not None and MESH_CONFIG in tables:
            self._roots.changed()
        if self._remote is not None and MESH_CONFIG in tables:
            self._remote.changed()
        if self._addresses is not None and SERVICE_ENTRY.table_name in tables:
            self._addresses.changed()
        if self._gateways is not None:
            self._gateways.committed(commit)
        if self._analysis is not None:
            self._analysis.edited(row.ref for _, _, row in commit.edits if isinstance(row, Object))

    def reached(self, nodes: Iterable[Node]) -> None:
        """Called when rows that follow from streams are in the tables."""
        if self._gateways is not None:
            self._gateways.reached(nodes)

    def _matters(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        if self._roots is not None:
            yield ROOTS_LOCK, self._roots.run
        if self._addresses is not None:
            yield ADDRESSES_LOCK, self._addresses.run
        if self._analysis is not None:
            yield ANALYSIS_LOCK, self._analysis.run
        if self._exports is not None:
            yield EXPORTS_LOCK, self._exports.run
        if self._taints is not None:
            yield TAINTS_LOCK, self._taints.run
        if self._gateways is not None:
            yield from self._gateways.matters()

    async def _leading(self, name: str, lead: Callable[[], Awaitable[None]]) -> None:
        if not self._settings.kubernetes.leader_election:
            await lead()
            return
        namespace = self._settings.mesh.registry.namespace
        if name not in OF_ALL_REVISIONS:
            await LeaderElection(Lock(self._client, LEASE, namespace, name), self._replica, self._terms).run(lead)
            return
        lock, precedence = Lock(self._client, CONFIG_MAP, namespace, name), self._precedence
        await LeaderElection(lock, self._replica, self._terms, precedence.key, precedence.outranks).run(lead)

    def _wanted_roots(self) -> Mapping[str, Mapping[str, str]]:
        """Returns the data of each ConfigMap that every namespace is to have, by its name; none before there are roots."""
        kubernetes, authority = self._settings.kubernetes, self._authority
        if authority is None or not authority.roots_pem():
            return {}
        wanted = {} if kubernetes.trust_bundle else {kubernetes.roots_map: {"root-cert.pem": self._roots_pem()}}
        return wanted | ({kubernetes.crl_map: {"ca-crl.pem": authority.crl.decode()}} if kubernetes.crl else {})

    def _selected(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Returns whether the mesh config counts a namespace in, and it is one that is read."""
        if self._settings.kubernetes.watched_namespace not in ("", namespace):
            return False
        config = self._db.mesh.peek("mesh")
        selectors = config.discovery_selectors if isinstance(config, MeshConfig) else ()
        return not selectors or any(
            selects(selector, {NAMESPACE_NAME_LABEL: namespace, **labels}) for selector in selectors
        )

    def _path_of_entry(self, key: ObjectKey) -> str:
        return self._source.path_of(SERVICE_ENTRY.id, key.namespace, key.name)

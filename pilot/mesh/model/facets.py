"""Facets: small frozen values that describe what can make the resources of two proxies differ.

Facets are the cache keys of everything that is built for proxies. `pilot.mesh.proxies` computes them from a `Proxy`, and no builder
receives a proxy. Each builder takes the smallest facet that it needs, so that proxies with equal facets share one computation and one
copy of the bytes. A facet that needs types of a higher layer is defined there; keys are parts of facets, or names of what is read.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from pilot.config.mesh.proxy_config import ConnectionSettings, PrivateKeyProvider, ProxyHeaders
from pilot.config.mesh.tracing import CustomTag
from pilot.config.object import ObjectKey
from pilot.lib.duration import Duration
from pilot.mesh.model.credential_key import CredentialKey
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import Port, ServiceRef
from pilot.mesh.model.telemetry_rules import LogRule, MetricRules, SpanRules

Labels = frozenset[tuple[str, str]]
PARTS_KEPT = 256
"""Facets of which a function remembers the part that matters to it. To take it anew is cheap, and those that are remembered stay in memory after
the last proxy of their class has left."""


PolicyScope = Literal["ports", "inbound", "outbound", "gateway", "waypoint", "patches"]
"""What policies change: who may connect to the ports of a workload, the filters of a sidecar's two sides, of a gateway and of a waypoint, and
anything at all by patches of what is built."""


class PolicyTargetKey(NamedTuple):
    """An object that policies of a namespace may name as their target."""

    namespace: str
    group: str
    kind: str
    name: str


class PolicySubjectKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The facts that decide which policies apply to a workload. `labels` are those that some policy asks for; `targets` are the objects that the
    proxy stands for, such as its Gateway of the Gateway API. `by_target_only`: a policy without targets is not for it, as at a waypoint, whose
    own labels say nothing about the services behind it."""

    namespace: str
    labels: Labels = frozenset()
    targets: frozenset[PolicyTargetKey] = frozenset()
    by_target_only: bool = False


class PolicyFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The policies that apply to a workload: by kind, the keys of their objects, those of the mesh first."""

    applied: tuple[tuple[str, tuple[ObjectKey, ...]], ...] = ()

    def of(self, kind: str) -> tuple[ObjectKey, ...]:
        """Returns the keys of one kind."""
        return next((keys for name, keys in self.applied if name == kind), ())


PatchContext = Literal["SIDECAR_INBOUND", "SIDECAR_OUTBOUND", "GATEWAY"]
"""The sides of proxies that patches are for."""


class PatchKey(NamedTuple):
    """A patch of an EnvoyFilter, by its position there."""

    filter: ObjectKey
    position: int


class PatchFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The patches of what one side of a proxy is sent, in the order in which they are applied.

    The rest is there only where a patch asks for it. `ports`: those that the servers of a router's routes name, by the port that they listen on;
    `hosts`: the services of a port of the workload.
    """

    context: PatchContext
    patches: tuple[PatchKey, ...] = ()
    ports: tuple[tuple[int, frozenset[int]], ...] = ()
    hosts: tuple[tuple[int, frozenset[str]], ...] = ()


class FeaturesFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The features that the proxy's build registers, where they matter; Istio's own proxy has all of them."""

    metadata_exchange: bool = True  # network filter istio.metadata_exchange, also as an upstream filter of clusters
    peer_metadata: bool = True  # HTTP filter io.istio.http.peer_metadata
    alpn: bool = True  # HTTP filter istio.alpn
    wasm: bool = True  # HTTP filter envoy.filters.http.wasm
    network_wasm: bool = True  # network filter envoy.filters.network.wasm
    lua: bool = True  # HTTP filter envoy.filters.http.lua
    mysql_proxy: bool = True  # network filter of Envoy's own, left out of its stock builds
    hashable_string: bool = True  # filter state istio.hashable_string, which stock builds call envoy.hashable_string
    internal_listeners: bool = (
        True  # listeners that only the proxy itself connects to, which its bootstrap must ask for
    )


class ScopeFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The configuration that is visible: that of a namespace, through a Sidecar object where one applies."""

    namespace: str
    sidecar: ObjectKey | None = None
    gateway: bool = False  # a router: no Sidecar, no egress listeners
    routed: tuple[ObjectKey, ...] | None = None  # only the services that these Gateways' routes lead to get clusters
    waypoint: ObjectKey | None = (
        None  # only the services that routes at this waypoint lead to get clusters, without those behind it
    )


class ReachFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The place that endpoints are seen from. `networks` are those of REQUESTED_NETWORK_VIEW, empty for all."""

    network: str = ""
    cluster_id: str = "Kubernetes"
    locality: Locality = Locality()
    node: str = ""
    ipv4: bool = True
    ipv6: bool = False
    networks: frozenset[str] = frozenset()


class TlsFilesFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """Paths of a proxy that brings its own mesh certificate: node metadata TLS_CLIENT_* and TLS_SERVER_*."""

    client_cert: str = ""
    client_key: str = ""
    client_root: str = ""
    server_cert: str = ""
    server_key: str = ""
    server_root: str = ""


class SecretServersFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """SDS servers of the user's own next to the proxy: node metadata `credential` and `file-credential`."""

    credentials: bool = False  # serves credentials named sds://…
    files: bool = False  # serves mounted files


class CredentialReaderFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The credentials that a proxy may read, by its verified identity: those of its own namespace, in its cluster or the own one.

    `lists_secrets`: its service account may read private keys there. `referred`: the Secrets of `kubernetes-gateway://` that a Gateway of the
    namespace refers to. `roots`: the names that its Gateways give for roots, though nothing in the name says so. `key_provider` does
    the arithmetic of private keys for the proxy, where its build has it.
    """

    namespace: str
    cluster: str
    lists_secrets: bool = False
    referred: frozenset[CredentialKey] = frozenset()
    roots: frozenset[CredentialKey] = frozenset()
    key_provider: PrivateKeyProvider | None = None


class ExtensionReaderFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The extensions that apply to a proxy, and the cluster whose Secrets it is told for pulling their images, None where it is told none.

    `fetched`: somebody beside the proxy fetches modules for it, which Envoy alone cannot.
    """

    applied: frozenset[ObjectKey] = frozenset()
    cluster: str | None = None
    fetched: bool = True


class SpanTagsFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The tags and names by which spans name their workload."""

    service: str = ""  # canonical name
    revision: str = "latest"  # canonical revision
    namespace: str = ""
    cluster_id: str = ""
    mesh_id: str = ""
    node_cluster: str = ""  # of the proxy's node, by which tracers know it
    conventional_service: str = ""  # by OpenTelemetry's conventions, where a provider asks for them
    peers: bool = False  # a waypoint's: the workloads at both ends, for it is neither


class ServiceTarget(msgspec.Struct, frozen=True, cache_hash=True):
    """A port of the proxy's own workload that a service points at."""

    ref: ServiceRef
    port: Port
    target_port: int


class TracingFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The spans that a proxy's config wants. `sampling` is in percent, `tags` are custom ones by name, `max_path_length` is 0 where it is not
    said. With `default` there are spans also where no Telemetry asks for them."""

    sampling: float = 1.0
    istio_tags: bool = True
    tags: tuple[tuple[str, CustomTag], ...] = ()
    max_path_length: int = 0
    default: bool = True


class TelemetryFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """What one side of a proxy tells of requests, as Telemetries say: by content, so that workloads with equal ones share what is built."""

    logs: tuple[LogRule, ...] = ()
    metrics: tuple[MetricRules, ...] = ()
    spans: SpanRules | None = None


class ListeningFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The way in which one side of a proxy listens, and what its HTTP connection managers do whatever they route.

    `policies` are those that change the filters of this side, `reserved_ports` those that the listeners of its bootstrap hold.
    `http_proxy_port` is the side's own, None for the mesh's. `lacks` is what telemetry may need and the proxy's build does not have
    (`model.telemetry_features`). `tunnelled`: connections come out of tunnels, so that the state of a connection, and not its certificate, says
    who makes it; `tells_client`: it tells the next one who that is. `picks`: its Gateway has routes to InferencePools.
    """

    side: Literal["inbound", "outbound", "gateway", "waypoint"] = "outbound"
    tunnelled: bool = False
    tells_client: bool = False
    policies: PolicyFacet = PolicyFacet()
    telemetry: TelemetryFacet = TelemetryFacet()
    features: FeaturesFacet = FeaturesFacet()
    ipv4: bool = True
    ipv6: bool = False
    interception: str = "REDIRECT"  # REDIRECT, TPROXY or NONE
    http10: bool = False
    idle_timeout: Duration | None = None
    http_proxy_port: int | None = None
    exact_balance: bool = False
    unprivileged: bool = False
    reserved_ports: frozenset[int] = frozenset()
    dns_proxy: str = ""  # "host:port" of its companion's DNS proxy, where DNS_CAPTURE is on
    headers: ProxyHeaders = ProxyHeaders()
    connections: ConnectionSettings = ConnectionSettings()
    tracing: TracingFacet = TracingFacet(default=False)
    lacks: frozenset[str] = frozenset()
    picks: bool = False


class OutboundListenersFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """All that the outbound listeners of a sidecar may depend on, but the tags of its spans. `labels` are as in `OutboundFacet`.

    `cluster` is the one whose addresses of services come first, "" for the default ones. `own_address` is the address whose own chain is
    left out where headless services have one listener of many pods.
    """

    scope: ScopeFacet
    listening: ListeningFacet
    labels: Labels = frozenset()
    auto_addresses: bool = False  # uses addresses that are allocated to services without one
    cluster: str = ""
    own_address: str = ""


class OutboundFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """All that outbound clusters, endpoints and routes may depend on.

    `labels` are the proxy's labels, but only those that some selector reachable from it (DestinationRule workloadSelector,
    VirtualService sourceLabels) asks for, so that unrelated labels do not split classes.
    """

    type: NodeType
    scope: ScopeFacet
    features: FeaturesFacet = FeaturesFacet()
    reach: ReachFacet = ReachFacet()
    labels: Labels = frozenset()
    tls_files: TlsFilesFacet = TlsFilesFacet()
    secret_servers: SecretServersFacet = SecretServersFacet()
    preserve_case: bool = False  # its proxy config's proxyHeaders.preserveHttp1HeaderCase
    no_hbone: bool = False  # sends no HBONE (DISABLE_HBONE_SEND)
    crosses: bool = False  # reaches other networks by tunnels in tunnels, where the mesh is so configured
    dns_proxy: str = ""  # "host:port" of its companion's DNS proxy (DNS_PROXY_ADDR), where DNS_CAPTURE is on


class SiblingsKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The endpoints of a proxy's own service that are like itself: zone-aware balancing compares its zone with theirs.

    `ref` is None where it serves nothing. `templates` are its values of the labels that tell the generations of a Deployment or Rollout apart.
    """

    ref: ServiceRef | None
    port: int = 0
    workload: str = ""
    templates: tuple[str, str] = ("", "")
    reach: ReachFacet = ReachFacet()


class InboundFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """All that a sidecar's inbound listeners and clusters may depend on.

    `targets` are in the order of the services' age; `policies` are those that say who may connect. `takes_hbone`: tunnels may end at the sidecar,
    which its node says (ENABLE_HBONE), if the mesh is ambient.
    """

    scope: ScopeFacet
    listening: ListeningFacet = ListeningFacet(side="inbound")
    policies: PolicyFacet = PolicyFacet()
    targets: tuple[ServiceTarget, ...] = ()
    ips: tuple[str, ...] = ()
    tls_files: TlsFilesFacet = TlsFilesFacet()
    tags: SpanTagsFacet = SpanTagsFacet()
    secret_servers: SecretServersFacet = SecretServersFacet()
    takes_hbone: bool = False

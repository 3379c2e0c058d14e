"""Facets: small frozen values that describe everything in which the resources of two proxies can differ.

Facets are the cache keys of everything that is built for proxies. `pilot.mesh.proxies` computes them from a `Proxy`.
Builders never receive a proxy. Each builder takes the smallest facet that it needs, so that proxies with equal facets
share one computation and one copy of the bytes. A facet that needs types of a higher layer is defined in that layer. A
class named `…Key` is a part of a facet, or identifies an input.
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
FACET_CACHE_SIZE = 256
"""Cache size of the functions that project a facet to a smaller one.

A projection is cheap to recompute, but a cached projection stays in memory after the last proxy of its class
disconnects.
"""


PolicyScope = Literal["ports", "inbound", "outbound", "gateway", "waypoint", "patches"]
"""The configuration that a policy affects.

This is the handling of connections to the ports of a workload, the filters on the inbound or outbound side of a
sidecar, the filters of a gateway or of a waypoint, or (with patches) any resource.
"""


class PolicyTargetKey(NamedTuple):
    """An object that policies in its namespace may target."""

    namespace: str
    group: str
    kind: str
    name: str


class PolicySubjectKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The properties of a workload that determine which policies apply to it.

    `labels` are limited to those that occur in selectors of policies. `targets` are the objects that the proxy
    represents, such as its Gateway. With `by_target_only`, policies without targets do not apply. This is set for
    waypoints, because their labels are unrelated to the services behind them.
    """

    namespace: str
    labels: Labels = frozenset()
    targets: frozenset[PolicyTargetKey] = frozenset()
    by_target_only: bool = False


class PolicyFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The policies that apply to a workload: the keys of the objects, grouped by kind. Mesh-wide policies are first."""

    applied: tuple[tuple[str, tuple[ObjectKey, ...]], ...] = ()

    def of(self, kind: str) -> tuple[ObjectKey, ...]:
        """Return the policies of one kind."""
        return next((keys for name, keys in self.applied if name == kind), ())


ProxyPatchContext = Literal["SIDECAR_INBOUND", "SIDECAR_OUTBOUND", "GATEWAY"]
"""The patch context of one side of a proxy."""


class PatchKey(NamedTuple):
    """A patch of an EnvoyFilter, identified by its position."""

    filter: ObjectKey
    position: int


class PatchFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The patches that apply to one side of a proxy, in the order in which they are applied.

    `ports` and `hosts` are set only if a patch matches on them. `ports` maps each port that a router listens on to the
    ports of its servers. `hosts` maps each port of the workload to the hostnames of its services.
    """

    context: ProxyPatchContext
    patches: tuple[PatchKey, ...] = ()
    ports: tuple[tuple[int, frozenset[int]], ...] = ()
    hosts: tuple[tuple[int, frozenset[str]], ...] = ()


class FeaturesFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """Relevant features of the proxy's build. Istio's own proxy has all of them."""

    metadata_exchange: bool = True  # network filter istio.metadata_exchange, also as an upstream filter of clusters
    peer_metadata: bool = True  # HTTP filter io.istio.http.peer_metadata
    tunnel_metadata: bool = True  # network filters of peer_metadata, which exchange the header baggage in tunnels
    alpn: bool = True  # HTTP filter istio.alpn
    wasm: bool = True  # HTTP filter envoy.filters.http.wasm
    network_wasm: bool = True  # network filter envoy.filters.network.wasm
    lua: bool = True  # HTTP filter envoy.filters.http.lua
    mysql_proxy: bool = True  # Envoy's network filter for MySQL, which stock builds lack
    hashable_string: bool = True  # filter state istio.hashable_string, which stock builds call envoy.hashable_string
    internal_listeners: bool = True  # internal listeners, which the bootstrap must enable


class ScopeFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The configuration that is visible to a proxy: that of its namespace, limited by the Sidecar that applies."""

    namespace: str
    sidecar: ObjectKey | None = None
    gateway: bool = False  # a router, which has no Sidecar and no egress listeners
    routed: tuple[ObjectKey, ...] | None = None  # limits clusters to the destinations of these Gateways' routes
    waypoint: ObjectKey | None = (
        None  # limits clusters to the destinations of this waypoint's routes, without the services behind it
    )


class LocationFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The location of a client, which determines how it reaches endpoints.

    `networks` are those in REQUESTED_NETWORK_VIEW. If the set is empty, all networks are visible.
    """

    network: str = ""
    cluster_id: str = "Kubernetes"
    locality: Locality = Locality()
    node: str = ""
    ipv4: bool = True
    ipv6: bool = False
    networks: frozenset[str] = frozenset()


class TlsFilesFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """Paths of a mesh certificate that the proxy itself provides (TLS_CLIENT_* and TLS_SERVER_* in its metadata)."""

    client_cert: str = ""
    client_key: str = ""
    client_root: str = ""
    server_cert: str = ""
    server_key: str = ""
    server_root: str = ""


class SecretServersFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """User-provided SDS servers next to the proxy. Its metadata lists them as `credential` and `file-credential`."""

    credentials: bool = False  # serves credentials named sds://…
    files: bool = False  # serves mounted files


class CredentialReaderFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The credentials that a proxy with its verified identity may read. They are in its namespace, either in its own
    cluster or in the local cluster.

    - `lists_secrets`: its service account may read the private keys in the namespace.
    - `referred`: the `kubernetes-gateway://` Secrets that Gateways in the namespace refer to.
    - `roots`: credentials that its Gateways use as root certificates, although their names do not say so.
    - `key_provider`: performs private key operations for the proxy, if the proxy's build supports this.
    """

    namespace: str
    cluster: str
    lists_secrets: bool = False
    referred: frozenset[CredentialKey] = frozenset()
    roots: frozenset[CredentialKey] = frozenset()
    key_provider: PrivateKeyProvider | None = None


class ExtensionReaderFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The extensions that apply to a proxy, and the cluster from which it receives their image pull secrets.

    The cluster is None if the proxy receives no secrets. `fetched` says that an agent next to the proxy fetches the
    modules. A bare Envoy cannot fetch them.
    """

    applied: frozenset[ObjectKey] = frozenset()
    cluster: str | None = None
    fetched: bool = True


class SpanTagsFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """Tags that identify the workload in spans."""

    service: str = ""  # canonical name
    revision: str = "latest"  # canonical revision
    namespace: str = ""
    cluster_id: str = ""
    mesh_id: str = ""
    node_cluster: str = ""  # the cluster in the node, which tracers use as the name of the workload
    conventional_service: str = ""  # service name by OpenTelemetry's conventions, if a provider uses it
    peers: bool = False  # for waypoints: tags identify both the source and the destination workload


class ServiceTarget(msgspec.Struct, frozen=True, cache_hash=True):
    """A service port that the proxy's own workload serves."""

    ref: ServiceRef
    port: Port
    target_port: int


class TracingFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """Tracing settings of the proxy config.

    `sampling` is a percentage. `tags` pairs the names of custom tags with their definitions. `max_path_length` is 0 if
    it is not set. With `default`, spans are reported even without a Telemetry.
    """

    sampling: float = 1.0
    istio_tags: bool = True
    tags: tuple[tuple[str, CustomTag], ...] = ()
    max_path_length: int = 0
    default: bool = True


class TelemetryFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The telemetry rules for one side of a proxy. They are values, not keys, so workloads with equal rules share
    resources."""

    logs: tuple[LogRule, ...] = ()
    metrics: tuple[MetricRules, ...] = ()
    spans: SpanRules | None = None


class ListeningFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """Settings of the listeners on one side of a proxy, and of their HTTP connection managers. They are independent of
    routes.

    - `policies`: the policies that change the filters on this side.
    - `reserved_ports`: the ports of the listeners in the proxy's bootstrap.
    - `http_proxy_port`: the HTTP proxy port on this side, or None for the mesh's default.
    - `unsupported_telemetry`: the telemetry requirements that the proxy does not meet
      (`pilot.mesh.model.telemetry_features`).
    - `tunnelled`: connections arrive in tunnels, so the peer's identity is in the filter state, not in a certificate.
    - `forwards_client`: the peer's identity is forwarded upstream.
    - `has_inference_pools`: the proxy's Gateway has routes to InferencePools.
    - `denies`: everything is denied, because the policies are too large for the number of filter chains.
    """

    side: Literal["inbound", "outbound", "gateway", "waypoint"] = "outbound"
    tunnelled: bool = False
    forwards_client: bool = False
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
    dns_proxy: str = ""  # "host:port" of its agent's DNS proxy if DNS_CAPTURE is on
    headers: ProxyHeaders = ProxyHeaders()
    connections: ConnectionSettings = ConnectionSettings()
    tracing: TracingFacet = TracingFacet(default=False)
    unsupported_telemetry: frozenset[str] = frozenset()
    has_inference_pools: bool = False
    denies: bool = False


class OutboundListenersFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """All properties that the outbound listeners of a sidecar may depend on, except the tags of its spans.

    `labels` are as in `OutboundFacet`. `cluster` is the cluster whose service addresses take precedence, or "" for the
    default addresses. `own_address` is the proxy's address, which has no filter chain in the listeners that the Pods of
    a headless service share.
    """

    scope: ScopeFacet
    listening: ListeningFacet
    labels: Labels = frozenset()
    auto_addresses: bool = False  # uses addresses that are allocated to services without addresses
    cluster: str = ""
    own_address: str = ""


class OutboundFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """All properties that outbound clusters, endpoints and routes may depend on.

    `labels` are limited to those in selectors that can affect the proxy (DestinationRule workloadSelector and
    VirtualService sourceLabels), so that unrelated labels do not split classes of proxies.
    """

    type: NodeType
    scope: ScopeFacet
    features: FeaturesFacet = FeaturesFacet()
    location: LocationFacet = LocationFacet()
    labels: Labels = frozenset()
    tls_files: TlsFilesFacet = TlsFilesFacet()
    secret_servers: SecretServersFacet = SecretServersFacet()
    preserve_case: bool = False  # proxyHeaders.preserveHttp1HeaderCase in its proxy config
    no_hbone: bool = False  # sends no HBONE (DISABLE_HBONE_SEND)
    double_hbone: bool = False  # uses double HBONE into other networks, if the settings enable it
    dns_proxy: str = ""  # "host:port" of its agent's DNS proxy (DNS_PROXY_ADDR) if DNS_CAPTURE is on


class SiblingsKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The endpoints of a proxy's own service that are replicas of the proxy.

    For zone-aware load balancing, Envoy compares their zones with that of the proxy. `ref` is None if the proxy serves
    no service. `templates` are the values of the labels that distinguish the revisions of a Deployment or Rollout.
    """

    ref: ServiceRef | None
    port: int = 0
    workload: str = ""
    templates: tuple[str, str] = ("", "")
    location: LocationFacet = LocationFacet()


class InboundFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """All properties that the inbound listeners and clusters of a sidecar may depend on.

    `targets` are ordered by the age of the service. `policies` determine who may connect. With `accepts_hbone`, the
    sidecar may terminate HBONE in an ambient mesh. The proxy's node reports this (ENABLE_HBONE).
    """

    scope: ScopeFacet
    listening: ListeningFacet = ListeningFacet(side="inbound")
    policies: PolicyFacet = PolicyFacet()
    targets: tuple[ServiceTarget, ...] = ()
    ips: tuple[str, ...] = ()
    tls_files: TlsFilesFacet = TlsFilesFacet()
    tags: SpanTagsFacet = SpanTagsFacet()
    secret_servers: SecretServersFacet = SecretServersFacet()
    accepts_hbone: bool = False

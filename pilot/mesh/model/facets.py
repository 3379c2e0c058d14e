"""Facets: small frozen values that describe everything that can make the resources of two proxies differ.

Facets are the cache keys of everything built for proxies. `pilot.mesh.proxies` computes them from a `Proxy`, and no
builder receives a proxy. Each builder takes the smallest facet that it needs, so that proxies with equal facets share
one computation and one copy of the bytes. A facet that needs types of a higher layer is defined there. A key is part of
a facet, or the name of an input.
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

A projection is cheap to recompute, and cached ones stay in memory after the last proxy of their class disconnects.
"""


PolicyScope = Literal["ports", "inbound", "outbound", "gateway", "waypoint", "patches"]
"""The resources that a policy affects: connections to a workload's ports, the filters of a sidecar's inbound or
outbound side, of a gateway or of a waypoint, or any resource by patches."""


class PolicyTargetKey(NamedTuple):
    """An object that policies of its namespace may target."""

    namespace: str
    group: str
    kind: str
    name: str


class PolicySubjectKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The facts that decide which policies apply to a workload.

    `labels` are only those that some policy selects by. `targets` are the objects that the proxy stands for, such as
    its Gateway. With `by_target_only`, policies without targets do not apply, as at a waypoint, whose own labels are
    unrelated to the services behind it.
    """

    namespace: str
    labels: Labels = frozenset()
    targets: frozenset[PolicyTargetKey] = frozenset()
    by_target_only: bool = False


class PolicyFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The policies that apply to a workload: object keys by kind, mesh-wide policies first."""

    applied: tuple[tuple[str, tuple[ObjectKey, ...]], ...] = ()

    def of(self, kind: str) -> tuple[ObjectKey, ...]:
        """Return the policies of one kind."""
        return next((keys for name, keys in self.applied if name == kind), ())


ProxyPatchContext = Literal["SIDECAR_INBOUND", "SIDECAR_OUTBOUND", "GATEWAY"]
"""The patch context to which a side of a proxy belongs."""


class PatchKey(NamedTuple):
    """A patch, by its position in an EnvoyFilter."""

    filter: ObjectKey
    position: int


class PatchFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The patches that apply to one side of a proxy, in the order of application.

    `ports` and `hosts` are filled only if a patch matches on them. `ports` are the server ports by the port that a
    router listens on; `hosts` are the hostnames of the services at each port of the workload.
    """

    context: ProxyPatchContext
    patches: tuple[PatchKey, ...] = ()
    ports: tuple[tuple[int, frozenset[int]], ...] = ()
    hosts: tuple[tuple[int, frozenset[str]], ...] = ()


class FeaturesFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """Relevant features of the proxy's build; Istio's own proxy has all of them."""

    metadata_exchange: bool = True  # network filter istio.metadata_exchange, also as an upstream filter of clusters
    peer_metadata: bool = True  # HTTP filter io.istio.http.peer_metadata
    alpn: bool = True  # HTTP filter istio.alpn
    wasm: bool = True  # HTTP filter envoy.filters.http.wasm
    network_wasm: bool = True  # network filter envoy.filters.network.wasm
    lua: bool = True  # HTTP filter envoy.filters.http.lua
    mysql_proxy: bool = True  # Envoy's network filter, which its stock builds lack
    hashable_string: bool = True  # filter state istio.hashable_string, which stock builds call envoy.hashable_string
    internal_listeners: bool = True  # internal listeners, which the bootstrap must enable


class ScopeFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The visible configuration: that of a namespace, limited by the Sidecar that applies."""

    namespace: str
    sidecar: ObjectKey | None = None
    gateway: bool = False  # a router, which has no Sidecar and no egress listeners
    routed: tuple[ObjectKey, ...] | None = None  # limits clusters to the destinations of these Gateways' routes
    waypoint: ObjectKey | None = (
        None  # limits clusters to the destinations of this waypoint's routes, without the services behind it
    )


class LocationFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The location of a client, from which endpoints are reached.

    `networks` are those of REQUESTED_NETWORK_VIEW; empty for all.
    """

    network: str = ""
    cluster_id: str = "Kubernetes"
    locality: Locality = Locality()
    node: str = ""
    ipv4: bool = True
    ipv6: bool = False
    networks: frozenset[str] = frozenset()


class TlsFilesFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """Paths of a mesh certificate that the proxy provides itself (node metadata TLS_CLIENT_* and TLS_SERVER_*)."""

    client_cert: str = ""
    client_key: str = ""
    client_root: str = ""
    server_cert: str = ""
    server_key: str = ""
    server_root: str = ""


class SecretServersFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """User-provided SDS servers next to the proxy: `credential` and `file-credential` in its node metadata."""

    credentials: bool = False  # serves credentials named sds://…
    files: bool = False  # serves mounted files


class CredentialReaderFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The credentials that a proxy may read under its verified identity: those of its own namespace, in its cluster or
    the local cluster.

    - `lists_secrets`: its service account may read private keys there.
    - `referred`: the `kubernetes-gateway://` Secrets to which Gateways of the namespace refer.
    - `roots`: credentials that its Gateways use as root certificates, although their names do not say so.
    - `key_provider`: performs private key operations for the proxy, if its build supports that.
    """

    namespace: str
    cluster: str
    lists_secrets: bool = False
    referred: frozenset[CredentialKey] = frozenset()
    roots: frozenset[CredentialKey] = frozenset()
    key_provider: PrivateKeyProvider | None = None


class ExtensionReaderFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The extensions that apply to a proxy, and the cluster whose image pull secrets it receives; None if it receives
    none.

    With `fetched`, an agent next to the proxy fetches the modules; a bare Envoy cannot.
    """

    applied: frozenset[ObjectKey] = frozenset()
    cluster: str | None = None
    fetched: bool = True


class SpanTagsFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """Tags that identify the workload in its spans."""

    service: str = ""  # canonical name
    revision: str = "latest"  # canonical revision
    namespace: str = ""
    cluster_id: str = ""
    mesh_id: str = ""
    node_cluster: str = ""  # of the proxy's node, which tracers use as its name
    conventional_service: str = ""  # by OpenTelemetry's conventions, if a provider requests it
    peers: bool = False  # of a waypoint: tags name the workloads at both ends, because it is neither


class ServiceTarget(msgspec.Struct, frozen=True, cache_hash=True):
    """A service port served by the proxy's own workload."""

    ref: ServiceRef
    port: Port
    target_port: int


class TracingFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """Tracing settings of the proxy config.

    `sampling` is in percent, `tags` are custom tags by name, and `max_path_length` is 0 if unset. With `default`, spans
    are also reported without a Telemetry.
    """

    sampling: float = 1.0
    istio_tags: bool = True
    tags: tuple[tuple[str, CustomTag], ...] = ()
    max_path_length: int = 0
    default: bool = True


class TelemetryFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """Telemetry of one side of a proxy, by content, so that workloads with equal settings share what is built."""

    logs: tuple[LogRule, ...] = ()
    metrics: tuple[MetricRules, ...] = ()
    spans: SpanRules | None = None


class ListeningFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """Settings of the listeners on one side of a proxy and of their HTTP connection managers, independent of routes.

    - `policies`: those that change the filters of this side.
    - `reserved_ports`: ports of the listeners in the proxy's bootstrap.
    - `http_proxy_port`: the port of this side, None for the mesh's default.
    - `unsupported_telemetry`: telemetry requirements that the proxy does not meet
      (`pilot.mesh.model.telemetry_features`).
    - `tunnelled`: connections arrive in tunnels, so the peer's identity is in the filter state instead of a
      certificate.
    - `forwards_client`: the peer's identity is forwarded upstream.
    - `has_inference_pools`: its Gateway has routes to InferencePools.
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


class OutboundListenersFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """All that the outbound listeners of a sidecar may depend on, except the tags of its spans. `labels` are as in
    `OutboundFacet`.

    `cluster` is the cluster whose service addresses come first, "" for the default ones. `own_address` gets no filter
    chain in listeners that are shared by the pods of headless services.
    """

    scope: ScopeFacet
    listening: ListeningFacet
    labels: Labels = frozenset()
    auto_addresses: bool = False  # uses allocated addresses of services that have none
    cluster: str = ""
    own_address: str = ""


class OutboundFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """All that outbound clusters, endpoints and routes may depend on.

    `labels` are limited to those that a reachable selector (DestinationRule workloadSelector, VirtualService
    sourceLabels) selects by, so that unrelated labels do not split classes.
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
    double_hbone: bool = False  # uses double HBONE into other networks, if the mesh is so configured
    dns_proxy: str = ""  # "host:port" of its agent's DNS proxy (DNS_PROXY_ADDR) if DNS_CAPTURE is on


class SiblingsKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The endpoints of a proxy's own service that are like itself. Zone-aware load balancing compares its zone with
    theirs.

    `ref` is None if the proxy serves nothing. `templates` are its values of the labels that distinguish the revisions
    of a Deployment or Rollout.
    """

    ref: ServiceRef | None
    port: int = 0
    workload: str = ""
    templates: tuple[str, str] = ("", "")
    location: LocationFacet = LocationFacet()


class InboundFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """All that a sidecar's inbound listeners and clusters may depend on.

    `targets` are sorted by the services' age. `policies` decide who may connect. With `accepts_hbone`, HBONE may
    terminate at the sidecar in an ambient mesh; its node reports it (ENABLE_HBONE).
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

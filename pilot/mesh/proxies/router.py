"""Computes the facets of a router, on which its listeners and routes depend."""

from __future__ import annotations

import msgspec

from pilot.config.kinds.istio import TELEMETRY
from pilot.config.mesh.proxy_config import ConnectionSettings, ProxyConfig
from pilot.config.object import ObjectKey
from pilot.derive import Gather, derived
from pilot.lib.duration import Duration
from pilot.lib.labels import cut
from pilot.mesh.gateways.gateways import gateway_selection_key
from pilot.mesh.gateways.servers import GatewaySelectionKey
from pilot.mesh.lowering.gateway_api.shadow_services import has_inference_pools
from pilot.mesh.model.facets import Labels, ListeningFacet, ScopeFacet, SecretServersFacet, SpanTagsFacet, TlsFilesFacet
from pilot.mesh.proxies.classify import listening_facet, outbound_facet, span_tags_facet
from pilot.mesh.registry.workloads import proxy_labels
from pilot.mesh.security.policies import GATEWAY_NAME, in_scope, proxy_policies
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxy_config import proxy_config
from pilot.mesh.telemetry.telemetry import telemetry_facet
from pilot.mesh.traffic.rule_traits import rule_traits
from pilot.mesh.traffic.virtual_services import virtual_services_for

HOUR = Duration.of(3600)
_EDGE = ConnectionSettings(
    profile="EDGE",
    listener_per_connection_buffer_limit_bytes=32 * 1024,
    http_idle_timeout=HOUR,
    http_stream_idle_timeout=Duration.of(300),
    http_request_timeout=Duration.of(300),
    http_request_headers_timeout=Duration.of(60),
    http_max_concurrent_streams=100,
    http2_initial_stream_window_size=64 * 1024,
    http2_initial_connection_window_size=1024 * 1024,
    http_headers_with_underscores_action="HEADERS_WITH_UNDERSCORES_REJECT_REQUEST",
    http_merge_slashes=True,
    http_path_with_escaped_slashes_action="UNESCAPE_AND_REDIRECT",
)
"""Envoy's recommendations for edge proxies:
https://www.envoyproxy.io/docs/envoy/latest/configuration/best_practices/edge"""
_UNSET = ConnectionSettings()


class TopologyFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The proxies in front of a router: their number, how they forward client certificates, and whether they use the
    PROXY protocol."""

    trusted_proxies: int = 0
    forward_client_cert: str = "SANITIZE_SET"
    proxy_protocol: bool = False


class GatewayRoutesFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The properties of a router that its routes may depend on.

    - `labels`: as in `OutboundFacet`.
    - `sources`: the router's labels that its VirtualServices match with sourceLabels.
    """

    scope: ScopeFacet
    selected: GatewaySelectionKey
    labels: Labels = frozenset()
    sources: Labels = frozenset()
    attempt_count: bool = True  # send the attempt count to upstreams
    forwarded_host: bool = False


class GatewayListenersFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The properties of a router that its listeners may depend on, except the Gateways that select it.

    `labels` are as in `OutboundFacet`.
    """

    scope: ScopeFacet
    listening: ListeningFacet
    tags: SpanTagsFacet
    labels: Labels = frozenset()
    topology: TopologyFacet = TopologyFacet()
    tls_files: TlsFilesFacet = TlsFilesFacet()
    secret_servers: SecretServersFacet = SecretServersFacet()


@derived
def gateway_routes_facet(db: Mesh, node_id: str) -> GatewayRoutesFacet:
    """Return the facet of a router's routes."""
    outbound, selected = outbound_facet(db, node_id), gateway_selection_key(db, node_id)
    keys = frozenset().union(*(_source_label_keys(db, outbound.scope.namespace, g) for g in selected.gateways))
    headers = listening_facet(db, node_id).headers
    return GatewayRoutesFacet(
        scope=outbound.scope,
        selected=selected,
        labels=outbound.labels,
        sources=cut(proxy_labels(db, node_id), keys),
        attempt_count=headers.attempt_count is None or not headers.attempt_count.disabled,
        forwarded_host=headers.x_forwarded_host is not None and bool(headers.x_forwarded_host.enabled),
    )


@derived
def gateway_listeners_facet(db: Mesh, node_id: str) -> GatewayListenersFacet:
    """Return the facet of a router's listeners."""
    outbound, listens, policies = outbound_facet(db, node_id), listening_facet(db, node_id), proxy_policies(db, node_id)
    return GatewayListenersFacet(
        scope=outbound.scope,
        listening=msgspec.structs.replace(
            listens,
            side="gateway",
            policies=in_scope(policies, "gateway"),
            telemetry=telemetry_facet(db, policies.of(TELEMETRY.id.name), "CLIENT"),
            connections=with_edge_defaults(listens.connections),
            has_inference_pools=has_inference_pools(
                db, ObjectKey(outbound.scope.namespace, proxy_labels(db, node_id).get(GATEWAY_NAME, ""))
            ),
        ),
        tags=span_tags_facet(db, node_id),
        labels=outbound.labels,
        topology=topology_of(proxy_config(db, node_id)),
        tls_files=outbound.tls_files,
        secret_servers=outbound.secret_servers,
    )


def with_edge_defaults(settings: ConnectionSettings) -> ConnectionSettings:
    """Return the connection settings of a router. With the profile EDGE, fields that are not set have the profile's
    values."""
    if settings.profile != "EDGE":
        return settings
    names = settings.__struct_fields__
    return ConnectionSettings(
        *(getattr(_EDGE if getattr(settings, n) == getattr(_UNSET, n) else settings, n) for n in names)
    )


def topology_of(config: ProxyConfig) -> TopologyFacet:
    """Return the topology in front of a router, as declared in its proxy config."""
    topology = config.gateway_topology
    if topology is None:
        return TopologyFacet()
    details = topology.forward_client_cert_details
    return TopologyFacet(
        topology.num_trusted_proxies,
        "SANITIZE_SET" if details == "UNDEFINED" else details,
        topology.proxy_protocol is not None,
    )


@derived
def bound_services(db: Mesh, namespace: str, gateway: ObjectKey) -> tuple[ObjectKey, ...]:
    """Return the VirtualServices that are bound to a Gateway and visible in `namespace`, in order of precedence."""
    return virtual_services_for(db, namespace, f"{gateway.namespace}/{gateway.name}")


@derived
def _label_keys_of(db: Mesh, key: ObjectKey, _namespace: str, _gateway: ObjectKey) -> frozenset[str] | None:
    return frozenset().union(*(traits.source_labels for traits in rule_traits(db, key))) or None


_label_keys_by_service: Gather[ObjectKey, [str, ObjectKey], frozenset[str]] = Gather(
    "source_labels_at_gateway", bound_services, _label_keys_of
)


@derived
def _source_label_keys(db: Mesh, namespace: str, gateway: ObjectKey) -> frozenset[str]:
    """Return the keys of sourceLabels in the VirtualServices of a Gateway."""
    return frozenset().union(*_label_keys_by_service(db, namespace, gateway).values())

"""The kinds of the Gateway API and its extensions."""

from __future__ import annotations

from pilot.config import indexes
from pilot.config.gateway_api.backend import BackendTLSPolicy, XBackend, XBackendTrafficPolicy
from pilot.config.gateway_api.gateway import Gateway, GatewayClass, ListenerSet
from pilot.config.gateway_api.grpc_route import GRPCRoute
from pilot.config.gateway_api.http_route import HTTPRoute
from pilot.config.gateway_api.inference_pool import InferencePool
from pilot.config.gateway_api.l4_route import TCPRoute, TLSRoute, UDPRoute
from pilot.config.gateway_api.reference import ReferenceGrant
from pilot.config.group_kind import EXPERIMENTAL_GATEWAY_API, GATEWAY_API, INFERENCE, GroupKind
from pilot.config.kind import Kind
from pilot.config.validation.gateway_api import (
    validate_gateway,
    validate_grpc_route,
    validate_http_route,
    validate_l4_route,
    validate_listener_set,
    validate_reference_grant,
    validate_tls_route,
)

_VERSIONS = ("v1", "v1beta1")
_ROUTE_INDEXES = {"bucket": indexes.route_bucket}

GATEWAY_CLASS = Kind(GroupKind(GATEWAY_API, "GatewayClass"), _VERSIONS, GatewayClass, namespaced=False)

KUBERNETES_GATEWAY = Kind(
    GroupKind(GATEWAY_API, "Gateway"),
    _VERSIONS,
    Gateway,
    validate_gateway,
    parts=("status",),
    indexes={"network": indexes.is_network_gateway},
)

LISTENER_SET = Kind(
    GroupKind(GATEWAY_API, "ListenerSet"),
    ("v1",),
    ListenerSet,
    validate_listener_set,
    indexes={"gateway": indexes.gateway_of_listener_set},
)

HTTP_ROUTE = Kind(
    GroupKind(GATEWAY_API, "HTTPRoute"),
    _VERSIONS,
    HTTPRoute,
    validate_http_route,
    indexes=_ROUTE_INDEXES,
)

GRPC_ROUTE = Kind(
    GroupKind(GATEWAY_API, "GRPCRoute"),
    ("v1",),
    GRPCRoute,
    validate_grpc_route,
    indexes=_ROUTE_INDEXES,
)

TCP_ROUTE = Kind(
    GroupKind(GATEWAY_API, "TCPRoute"),
    ("v1", "v1alpha2"),
    TCPRoute,
    validate_l4_route,
    indexes=_ROUTE_INDEXES,
)

TLS_ROUTE = Kind(
    GroupKind(GATEWAY_API, "TLSRoute"),
    ("v1", "v1alpha3", "v1alpha2"),
    TLSRoute,
    validate_tls_route,
    indexes=_ROUTE_INDEXES,
)

UDP_ROUTE = Kind(GroupKind(GATEWAY_API, "UDPRoute"), ("v1alpha2",), UDPRoute, validate_l4_route)

REFERENCE_GRANT = Kind(
    GroupKind(GATEWAY_API, "ReferenceGrant"),
    ("v1beta1", "v1"),
    ReferenceGrant,
    validate_reference_grant,
    indexes={"pair": indexes.granted_pairs},
)

BACKEND_TLS_POLICY = Kind(
    GroupKind(GATEWAY_API, "BackendTLSPolicy"),
    ("v1", "v1alpha3"),
    BackendTLSPolicy,
    indexes={"target": indexes.policy_targets},
)

BACKEND_TRAFFIC_POLICY = Kind(
    GroupKind(EXPERIMENTAL_GATEWAY_API, "XBackendTrafficPolicy"),
    ("v1alpha1",),
    XBackendTrafficPolicy,
    indexes={"target": indexes.policy_targets},
)

BACKEND = Kind(GroupKind(EXPERIMENTAL_GATEWAY_API, "XBackend"), ("v1alpha1",), XBackend)

INFERENCE_POOL = Kind(GroupKind(INFERENCE, "InferencePool"), ("v1",), InferencePool)

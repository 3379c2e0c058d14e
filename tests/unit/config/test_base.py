"""What nodes of the graph keep and compare never changes under them: configuration, what is derived from it, and settings are frozen."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect
import pytest

import pilot.config
import pilot.mesh
import pilot.settings
from pilot.config.base import Int32, Int64, Strict, UInt32, UInt64

OWN_DEFAULTS = ("MeshConfig", "ProxyConfig")


def classes(package: str, path: list[str]) -> Iterator[type]:
    for found in pkgutil.walk_packages(path, f"{package}."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            yield from (
                value
                for value in vars(module).values()
                if inspect.isclass(value) and value.__module__ == module.__name__
            )


def structs_of_the_model() -> list[type]:
    """Return the structs of what users write and of what follows from it."""
    found = [*classes("pilot.config", pilot.config.__path__), *classes("pilot.mesh", pilot.mesh.__path__)]
    return sorted((kind for kind in found if issubclass(kind, msgspec.Struct)), key=lambda kind: kind.__name__)


def test_what_objects_say_and_what_follows_from_it_is_frozen() -> None:
    structs: list[Any] = structs_of_the_model()
    assert len(structs) >= 350
    assert [f"{kind.__module__}.{kind.__name__}" for kind in structs if not kind.__struct_config__.frozen] == []


def test_settings_are_frozen() -> None:
    sections: list[Any] = [
        kind for kind in classes("pilot.settings", pilot.settings.__path__) if dataclasses.is_dataclass(kind)
    ]
    assert len(sections) >= 20
    assert [kind.__name__ for kind in sections if not kind.__dataclass_params__.frozen] == []


def test_what_a_message_of_istio_does_not_say_is_what_protobuf_takes_it_for() -> None:
    found = classes("pilot.config", pilot.config.__path__)
    messages = [kind for kind in found if issubclass(kind, Strict) and kind.__name__ not in OWN_DEFAULTS]
    others = []
    for kind in messages:
        for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
            default = field.default
            if (
                isinstance(default, int | float | str)
                and not isinstance(field.type, msgspec.inspect.LiteralType)
                and default
            ):
                others.append(f"{kind.__name__}.{field.name} {default!r}")
    assert len(messages) > 150
    assert others == []


ASSUMED = """
AddressFamiliesFacet.ipv4=True BackendObjectReference.kind=Service BackendRef.kind=Service BackendRef.weight=1 ContainerPort.protocol=TCP
EgressListener.capture_mode=DEFAULT Endpoint.health=Healthy Endpoint.tls_mode=disabled EndpointPickerRef.kind=Service
EndpointPickerRef.failure_mode=FailClose EndpointPort.protocol=TCP EndpointSlice.address_type=IPv4 ExtensionReaderFacet.fetched=True
FeaturesFacet.metadata_exchange=True FeaturesFacet.peer_metadata=True FeaturesFacet.alpn=True FeaturesFacet.wasm=True
FeaturesFacet.network_wasm=True FeaturesFacet.lua=True FeaturesFacet.mysql_proxy=True FeaturesFacet.hashable_string=True
FeaturesFacet.internal_listeners=True Fraction.denominator=100 FrontendValidation.mode=AllowValidOnly GRPCMethodMatch.type=Exact
GatewayAddress.type=IPAddress GatewayRoutesFacet.attempt_count=True HTTPBackendRef.kind=Service HTTPBackendRef.weight=1
HTTPCORSFilter.max_age=5 HTTPPathMatch.type=PathPrefix HTTPPathMatch.value=/ HTTPPathModifier.type=ReplaceFullPath
HTTPRequestRedirectFilter.status_code=302 ListenerNamespaces.from_=None ListenerTLSConfig.mode=Terminate ListeningFacet.side=outbound
ListeningFacet.ipv4=True ListeningFacet.interception=REDIRECT LocationFacet.cluster_id=Kubernetes LocationFacet.ipv4=True
MeshConfig.proxy_listen_port=15001 MeshConfig.proxy_inbound_listen_port=15006
MeshConfig.connect_timeout=10s MeshConfig.ingress_class=istio MeshConfig.ingress_service=istio-ingressgateway
MeshConfig.ingress_controller_mode=STRICT MeshConfig.enable_tracing=True MeshConfig.access_log_encoding=TEXT
MeshConfig.enable_auto_mtls=True MeshConfig.trust_domain=cluster.local MeshConfig.root_namespace=istio-system
MeshConfig.dns_refresh_rate=60s MeshConfig.h2_upgrade_policy=DO_NOT_UPGRADE MeshConfig.enable_prometheus_merge=True NameMatch.type=Exact
NetworkGateways.scale=1 ParentReference.group=gateway.networking.k8s.io ParentReference.kind=Gateway Problem.severity=error
ProxyConfig.config_path=./etc/istio/proxy ProxyConfig.binary_path=/usr/local/bin/envoy ProxyConfig.service_cluster=istio-proxy
ProxyConfig.drain_duration=45s ProxyConfig.discovery_address=istiod.istio-system.svc:15012 ProxyConfig.proxy_admin_port=15000
ProxyConfig.control_plane_auth_policy=MUTUAL_TLS ProxyConfig.stat_name_length=189 ProxyConfig.interception_mode=REDIRECT
ProxyConfig.status_port=15020 ProxyConfig.termination_drain_duration=5s
ResolverFacet.all_clusters=True RouteNamespaces.from_=Same Secret.type=Opaque SecretObjectReference.kind=Secret Service.type=ClusterIP
Service.internal_traffic_policy=Cluster ServiceAddress.families=AUTOMATIC ServicePort.protocol=TCP SidecarRoutesFacet.attempt_count=True
SpanRules.request_id_sampling=True SpanRules.istio_tags=True SpanRules.propagated=True SpanTagsFacet.revision=latest
TopologyFacet.forward_client_cert=SANITIZE_SET TracingFacet.sampling=1.0 TracingFacet.istio_tags=True TracingFacet.default=True
Waypoint.traffic=service Workload.tls_mode=disabled Workload.ready=True WorkloadAddress.healthy=True WorkloadAddress.is_compute=True
WorkloadMtls.mode=PERMISSIVE XBackend.protocol=HTTP
"""


def test_what_is_taken_for_said_where_nobody_says_it() -> None:
    """Fields that have a default other than protobuf's: of Kubernetes, of the Gateway API, of the mesh config, and of what proxies are."""
    found: list[str] = []
    for kind in structs_of_the_model():
        if not issubclass(kind, Strict) or kind.__name__ in OWN_DEFAULTS:
            said = ((field.name, field.default) for field in msgspec.structs.fields(kind))
            found += [
                f"{kind.__name__}.{name}={default}"
                for name, default in said
                if isinstance(default, int | float | str) and default
            ]
    assert found == ASSUMED.split()


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [(Int32, -(2**31), 2**31 - 1), (Int64, -(2**63), 2**63 - 1), (UInt32, 0, 2**32 - 1), (UInt64, 0, None)],
)
def test_numbers_have_the_bounds_of_protobuf(kind: Any, low: int, high: int | None) -> None:
    bounds = msgspec.inspect.type_info(kind)
    assert (bounds.ge, bounds.le) == (low, high)  # type: ignore[attr-defined]

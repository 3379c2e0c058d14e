"""Immutability and defaults of configuration, mesh model and settings."""

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

STRUCTS_WITH_OTHER_DEFAULTS = ("MeshConfig", "ProxyConfig")


def classes(package: str, path: list[str]) -> Iterator[type]:
    for module_info in pkgutil.walk_packages(path, f"{package}."):
        if not module_info.name.endswith("__main__"):
            module = importlib.import_module(module_info.name)
            yield from (
                value
                for value in vars(module).values()
                if inspect.isclass(value) and value.__module__ == module.__name__
            )


def model_structs() -> list[type]:
    """Return the structs of configuration and of the mesh model."""
    model_classes = [*classes("pilot.config", pilot.config.__path__), *classes("pilot.mesh", pilot.mesh.__path__)]
    return sorted((cls for cls in model_classes if issubclass(cls, msgspec.Struct)), key=lambda cls: cls.__name__)


def test_model_structs_are_frozen() -> None:
    structs: list[Any] = model_structs()
    assert len(structs) >= 350
    assert [f"{cls.__module__}.{cls.__name__}" for cls in structs if not cls.__struct_config__.frozen] == []


def test_settings_are_frozen() -> None:
    sections: list[Any] = [
        cls for cls in classes("pilot.settings", pilot.settings.__path__) if dataclasses.is_dataclass(cls)
    ]
    assert len(sections) >= 20
    assert [cls.__name__ for cls in sections if not cls.__dataclass_params__.frozen] == []


def test_istio_messages_have_protobuf_defaults() -> None:
    config_classes = classes("pilot.config", pilot.config.__path__)
    messages = [
        cls for cls in config_classes if issubclass(cls, Strict) and cls.__name__ not in STRUCTS_WITH_OTHER_DEFAULTS
    ]
    other_defaults = []
    for cls in messages:
        for field in msgspec.inspect.type_info(cls).fields:  # type: ignore[attr-defined]
            default = field.default
            if (
                isinstance(default, int | float | str)
                and not isinstance(field.type, msgspec.inspect.LiteralType)
                and default
            ):
                other_defaults.append(f"{cls.__name__}.{field.name} {default!r}")
    assert len(messages) > 150
    assert other_defaults == []


DEFAULTS = """
AddressFamiliesFacet.ipv4=True BackendObjectReference.kind=Service BackendRef.kind=Service BackendRef.weight=1 ContainerPort.protocol=TCP
EgressListener.capture_mode=DEFAULT Endpoint.health=Healthy Endpoint.tls_mode=disabled EndpointPickerRef.kind=Service
EndpointPickerRef.failure_mode=FailClose EndpointPort.protocol=TCP EndpointSlice.address_type=IPv4 ExtensionReaderFacet.fetched=True
FeaturesFacet.metadata_exchange=True FeaturesFacet.peer_metadata=True FeaturesFacet.tunnel_metadata=True FeaturesFacet.alpn=True FeaturesFacet.wasm=True
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


def test_other_defaults() -> None:
    """Kubernetes, the Gateway API, the mesh config and proxies have defaults other than those of protobuf."""
    actual: list[str] = []
    for cls in model_structs():
        if not issubclass(cls, Strict) or cls.__name__ in STRUCTS_WITH_OTHER_DEFAULTS:
            defaults = ((field.name, field.default) for field in msgspec.structs.fields(cls))
            actual += [
                f"{cls.__name__}.{name}={default}"
                for name, default in defaults
                if isinstance(default, int | float | str) and default
            ]
    assert actual == DEFAULTS.split()


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [(Int32, -(2**31), 2**31 - 1), (Int64, -(2**63), 2**63 - 1), (UInt32, 0, 2**32 - 1), (UInt64, 0, None)],
)
def test_integer_bounds(kind: Any, low: int, high: int | None) -> None:
    bounds = msgspec.inspect.type_info(kind)
    assert (bounds.ge, bounds.le) == (low, high)  # type: ignore[attr-defined]

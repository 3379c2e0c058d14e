"""The type URLs of configuration objects over xDS, and the messages that their specs are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from google.protobuf import struct_pb2

from protos.istio import (
    authorization_policy_pb2,
    destination_rule_pb2,
    envoy_filter_pb2,
    gateway_pb2,
    peer_authentication_pb2,
    proxy_config_object_pb2,
    request_authentication_pb2,
    service_entry_pb2,
    sidecar_pb2,
    telemetry_pb2,
    traffic_extension_pb2,
    virtual_service_pb2,
    wasm_plugin_pb2,
    workload_entry_pb2,
    workload_group_pb2,
)

CORE = "core"
"""What stands for the group of kinds that have none."""
MESH_CONFIG = f"{CORE}/v1alpha1/MeshConfig"
"""The type URL of the mesh config, which is sent as itself."""
_NETWORKING, _SECURITY, _EXTENSIONS = "networking.istio.io", "security.istio.io", "extensions.istio.io"
_SPECS: Mapping[tuple[str, str], type[Any]] = {
    (_NETWORKING, "VirtualService"): virtual_service_pb2.VirtualService,
    (_NETWORKING, "DestinationRule"): destination_rule_pb2.DestinationRule,
    (_NETWORKING, "Gateway"): gateway_pb2.Gateway,
    (_NETWORKING, "ServiceEntry"): service_entry_pb2.ServiceEntry,
    (_NETWORKING, "WorkloadEntry"): workload_entry_pb2.WorkloadEntry,
    (_NETWORKING, "WorkloadGroup"): workload_group_pb2.WorkloadGroup,
    (_NETWORKING, "Sidecar"): sidecar_pb2.Sidecar,
    (_NETWORKING, "EnvoyFilter"): envoy_filter_pb2.EnvoyFilter,
    (_NETWORKING, "ProxyConfig"): proxy_config_object_pb2.ProxyConfig,
    (_SECURITY, "AuthorizationPolicy"): authorization_policy_pb2.AuthorizationPolicy,
    (_SECURITY, "PeerAuthentication"): peer_authentication_pb2.PeerAuthentication,
    (_SECURITY, "RequestAuthentication"): request_authentication_pb2.RequestAuthentication,
    ("telemetry.istio.io", "Telemetry"): telemetry_pb2.Telemetry,
    (_EXTENSIONS, "WasmPlugin"): wasm_plugin_pb2.WasmPlugin,
    (_EXTENSIONS, "TrafficExtension"): traffic_extension_pb2.TrafficExtension,
}


class ObjectType(NamedTuple):
    """A kind of object in one of its versions. `group` is "" for kinds that have none."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        """Returns the type URL."""
        return f"{self.group or CORE}/{self.version}/{self.kind}"

    @property
    def api_version(self) -> str:
        """Returns the apiVersion of its objects, as files have it."""
        return f"{self.group}/{self.version}" if self.group else self.version


def parse_object_type(type_url: str) -> ObjectType | None:
    """Returns the kind and version that a type URL names; None for one of messages, such as Envoy's."""
    parts = type_url.split("/")
    if len(parts) != 3 or not all(parts):
        return None
    group, version, kind = parts
    return ObjectType("" if group == CORE else group, version, kind)


def is_configuration(group: str) -> bool:
    """Returns whether kinds of a group are configuration that is exchanged over xDS, and not what runs in a cluster."""
    return is_istio(group) or group == "gateway.networking.k8s.io"


def is_istio(group: str) -> bool:
    """Returns whether a group is one of Istio's."""
    return group.endswith(".istio.io")


def spec_message(of: ObjectType) -> type[Any]:
    """Returns the message that specs of a kind are: Istio's own of its kinds, google.protobuf.Struct of any other."""
    return _SPECS.get((of.group, of.kind), struct_pb2.Struct)

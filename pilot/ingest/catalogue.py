"""Every kind that is read: where it comes from, its struct, its table, its rules. A new kind is one entry."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pilot.model.config.config_map import ConfigMap
from pilot.model.config.destination_rule import DestinationRule
from pilot.model.config.endpoint_slice import EndpointSlice
from pilot.model.config.gateway import Gateway
from pilot.model.config.namespace import Namespace
from pilot.model.config.node import Node
from pilot.model.config.object import Object
from pilot.model.config.peer_authentication import PeerAuthentication
from pilot.model.config.pod import Pod
from pilot.model.config.request_authentication import RequestAuthentication
from pilot.model.config.secret import Secret
from pilot.model.config.service import Service
from pilot.model.config.service_entry import ServiceEntry
from pilot.model.config.sidecar import Sidecar
from pilot.model.config.virtual_service import VirtualService
from pilot.model.config.workload_entry import WorkloadEntryObject
from pilot.model.config.workload_group import WorkloadGroup
from pilot.model.problem import Problem
from pilot.model.validate.authentication import validate_peer_authentication, validate_request_authentication
from pilot.model.validate.destination_rule import validate_destination_rule
from pilot.model.validate.gateway import validate_gateway
from pilot.model.validate.kubernetes import validate_endpoint_slice, validate_pod, validate_service
from pilot.model.validate.service_entry import validate_service_entry
from pilot.model.validate.sidecar import validate_sidecar
from pilot.model.validate.virtual_service import validate_virtual_service
from pilot.model.validate.workload import validate_workload_entry, validate_workload_group

NETWORKING = "networking.istio.io"
SECURITY = "security.istio.io"


def accept(_: Object[Any]) -> Iterable[Problem]:
    return ()


class Kind(NamedTuple):
    """`table`: attribute of `Mesh`. `parts`: top-level fields of an object that its struct takes besides those of `spec`.
    `validate`: problems of a decoded object, with paths relative to the object."""

    group: str
    versions: tuple[str, ...]
    name: str
    table: str
    spec: type[Any]
    validate: Callable[[Object[Any]], Iterable[Problem]] = accept
    parts: tuple[str, ...] = ()
    namespaced: bool = True


_ISTIO = ("v1", "v1beta1", "v1alpha3")
_SLICE_PARTS = ("addressType", "endpoints", "ports")
KINDS = (
    Kind("", ("v1",), "Service", "services", Service, validate_service, parts=("status",)),
    Kind("", ("v1",), "Pod", "pods", Pod, validate_pod, parts=("status",)),
    Kind("", ("v1",), "Namespace", "namespaces", Namespace, namespaced=False),
    Kind("", ("v1",), "Node", "nodes", Node, parts=("status",), namespaced=False),
    Kind("", ("v1",), "Secret", "secrets", Secret, parts=("type", "data")),
    Kind("", ("v1",), "ConfigMap", "config_maps", ConfigMap, parts=("data", "binaryData")),
    Kind("discovery.k8s.io", ("v1",), "EndpointSlice", "endpoint_slices", EndpointSlice, validate_endpoint_slice, _SLICE_PARTS),
    Kind(NETWORKING, _ISTIO, "VirtualService", "virtual_services", VirtualService, validate_virtual_service),
    Kind(NETWORKING, _ISTIO, "DestinationRule", "destination_rules", DestinationRule, validate_destination_rule),
    Kind(NETWORKING, _ISTIO, "Gateway", "gateways", Gateway, validate_gateway),
    Kind(NETWORKING, _ISTIO, "ServiceEntry", "service_entries", ServiceEntry, validate_service_entry, parts=("status",)),
    Kind(NETWORKING, _ISTIO, "WorkloadEntry", "workload_entries", WorkloadEntryObject, validate_workload_entry, parts=("status",)),
    Kind(NETWORKING, _ISTIO, "WorkloadGroup", "workload_groups", WorkloadGroup, validate_workload_group),
    Kind(NETWORKING, _ISTIO, "Sidecar", "sidecars", Sidecar, validate_sidecar),
    Kind(SECURITY, ("v1", "v1beta1"), "PeerAuthentication", "peer_authentications", PeerAuthentication, validate_peer_authentication),
    Kind(SECURITY, ("v1", "v1beta1"), "RequestAuthentication", "request_authentications", RequestAuthentication, validate_request_authentication),
)
CATALOGUE = {(kind.group, kind.name): kind for kind in KINDS}


def is_ours(group: str) -> bool:
    """Whether a kind of that group that is not in the catalogue deserves a word: one that a mesh could be expected to obey."""
    return group.endswith(".istio.io") or group in ("gateway.networking.k8s.io", "networking.k8s.io", "discovery.k8s.io")

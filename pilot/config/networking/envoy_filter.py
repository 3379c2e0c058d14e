"""networking.istio.io EnvoyFilter. https://istio.io/latest/docs/reference/config/networking/envoy-filter/"""

from __future__ import annotations

from typing import Any, Literal

from pilot.config.base import Int32, OneOf, Strict, UInt32
from pilot.config.selector import PolicyTargetReference, WorkloadSelector

ApplyTo = Literal[
    "INVALID",
    "LISTENER",
    "FILTER_CHAIN",
    "NETWORK_FILTER",
    "HTTP_FILTER",
    "ROUTE_CONFIGURATION",
    "VIRTUAL_HOST",
    "HTTP_ROUTE",
    "CLUSTER",
    "EXTENSION_CONFIG",
    "BOOTSTRAP",
    "LISTENER_FILTER",
]
PatchContext = Literal["ANY", "SIDECAR_INBOUND", "SIDECAR_OUTBOUND", "GATEWAY", "WAYPOINT"]
Operation = Literal[
    "INVALID",
    "MERGE",
    "ADD",
    "REMOVE",
    "INSERT_BEFORE",
    "INSERT_AFTER",
    "INSERT_FIRST",
    "REPLACE",
    "MERGE_AND_REPLACE_LIST",
]
FilterClass = Literal["UNSPECIFIED", "AUTHN", "AUTHZ", "STATS"]
RouteAction = Literal["ANY", "ROUTE", "REDIRECT", "DIRECT_RESPONSE"]


class EnvoyFilter(Strict, frozen=True):
    """Patches the configuration that proxies receive. EnvoyFilters with a lower `priority` are applied first."""

    workload_selector: WorkloadLabels | None = None
    config_patches: tuple[EnvoyConfigObjectPatch, ...] = ()
    priority: Int32 = 0
    target_refs: tuple[PolicyTargetReference, ...] = ()

    @property
    def selector(self) -> WorkloadSelector | None:
        """The workload selector, as the type that other policies use."""
        return WorkloadSelector(self.workload_selector.labels) if self.workload_selector is not None else None


class WorkloadLabels(Strict, frozen=True):
    labels: dict[str, str] = {}


class EnvoyConfigObjectPatch(Strict, frozen=True):
    apply_to: ApplyTo = "INVALID"
    match: EnvoyConfigObjectMatch | None = None
    patch: Patch | None = None


class Patch(Strict, frozen=True):
    """An operation and its value. `value` is a part of an Envoy message, as JSON."""

    operation: Operation = "INVALID"
    value: dict[str, Any] | None = None
    filter_class: FilterClass = "UNSPECIFIED"


class EnvoyConfigObjectMatch(OneOf, frozen=True):
    """Selects the objects that a patch applies to. Unset fields match everything."""

    groups = (("listener", "route_configuration", "cluster", "waypoint"),)

    context: PatchContext = "ANY"
    proxy: ProxyMatch | None = None
    listener: ListenerMatch | None = None
    route_configuration: RouteConfigurationMatch | None = None
    cluster: ClusterMatch | None = None
    waypoint: WaypointMatch | None = None


class ProxyMatch(Strict, frozen=True):
    """Selects proxies.

    `proxy_version` is an RE2 expression that must match a part of the version. `metadata` contains node metadata
    values.
    """

    proxy_version: str = ""
    metadata: dict[str, str] = {}


class ClusterMatch(Strict, frozen=True):
    port_number: UInt32 = 0
    service: str = ""
    subset: str = ""
    name: str = ""


class ListenerMatch(Strict, frozen=True):
    port_number: UInt32 = 0
    port_name: str = ""
    filter_chain: FilterChainMatch | None = None
    listener_filter: str = ""
    name: str = ""


class FilterChainMatch(Strict, frozen=True):
    """Selects filter chains.

    `application_protocols` is a comma-separated list; a chain must have all of these protocols.
    """

    name: str = ""
    sni: str = ""
    transport_protocol: str = ""
    application_protocols: str = ""
    filter: FilterMatch | None = None
    destination_port: UInt32 = 0
    transport_socket: str = ""


class FilterMatch(Strict, frozen=True):
    name: str = ""
    sub_filter: SubFilterMatch | None = None


class SubFilterMatch(Strict, frozen=True):
    name: str = ""


class RouteConfigurationMatch(Strict, frozen=True):
    port_number: UInt32 = 0
    port_name: str = ""
    gateway: str = ""
    vhost: VirtualHostMatch | None = None
    name: str = ""


class VirtualHostMatch(Strict, frozen=True):
    name: str = ""
    route: RouteMatch | None = None
    domain_name: str = ""


class RouteMatch(Strict, frozen=True):
    name: str = ""
    action: RouteAction = "ANY"


class WaypointMatch(Strict, frozen=True):
    filter: FilterMatch | None = None
    port_number: UInt32 = 0
    route: WaypointRouteMatch | None = None


class WaypointRouteMatch(Strict, frozen=True):
    name: str = ""

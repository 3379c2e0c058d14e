"""Truthy defaults of named tuples and structs in pilot.mesh and pilot.envoy."""

from __future__ import annotations

import msgspec

import pilot.envoy
import pilot.mesh
from tests.unit.config.test_base import classes

DEFAULTS = """
AddressPort.protocol=UnsupportedProtocol AncestorStatus.mesh=True GatewayAddresses.usable=True
GatewayClassInfo.programmed=True GatewayClassInfo.listener_sets=True GatewayClassInfo.suffix=True
GatewayClassInfo.addresses=Hostname LoadBalancing.mode=UNSPECIFIED_MODE PolicyKind.root_selects=every
TargetPort.translates=True WaypointAddress.port=15008 AccessLogs.logs_listeners=True ClientLocationKey.ipv4=True
ClientLocationKey.ipv6=True ClientLocationKey.sidecar=True ClientLocationKey.cross_network=sni
ClusterDefaults.auto_mtls=True ClusterDefaults.dns_udp_max_queries=100 ClusterDefaults.send_unhealthy=True
ClusterDefaults.external_tls_by_rule=True ClusterDefaults.telemetry_label=True ClusterDefaults.metadata_exchange=True
ClusterDefaults.metadata_exchange_alpn=True ClusterTraitsKey.type=sidecar ClusterTraitsKey.metadata_exchange=True
ClusterTraitsKey.supports_tunnels=True ClusterTraitsKey.tunnel_metadata=True ClusterTraitsKey.ipv4=True EndpointPolicy.send_unhealthy=True
EndpointTunnel.matches_socket=True EndpointTunnel.listener=connect_originate FilterOptions.metadata_exchange=True
FilterOptions.alpn=True FilterOptions.exchanges=True GatewayOptions.max_accepts=1 HttpOptions.normalization=DEFAULT
HttpOptions.continue_100=True L4Chain.records_source=True LbEndpointOptions.telemetry=True ListenerHead.binds_port=True
ListenerHead.max_accepts=1 ListenerOptions.max_accepts=1 ListenerOptions.lookup_family=1 LocalityMember.weight=1
NameTableEntry.local=True NetworkOptions.mongo=True OutboundChainKey.protocol=TCP RequestTracing.sampling=1.0
RequestTracing.istio_tags=True RequestTracing.propagates_context=True RequestTracing.request_id_sampling=True
TlsPeer.mtls=UNKNOWN TunnelOriginator.redirected=True UnhealthySettings.send_unhealthy=True
UpstreamTls.metadata_exchange=True VirtualHostKey.attempt_count=True ZipkinTracer.supports_collector_service=True
"""


def test_truthy_defaults() -> None:
    actual: list[str] = []
    for package in (pilot.mesh, pilot.envoy):
        for cls in sorted(classes(package.__name__, list(package.__path__)), key=lambda cls: cls.__name__):
            defaults = dict(getattr(cls, "_field_defaults", {}))
            if package is pilot.envoy and issubclass(cls, msgspec.Struct):
                defaults = {field.name: field.default for field in msgspec.structs.fields(cls)}
            actual += [
                f"{cls.__name__}.{name}={default}"
                for name, default in defaults.items()
                if isinstance(default, int | float | str) and default
            ]
    assert actual == DEFAULTS.split()


def test_structs_are_frozen_except_locality_groups() -> None:
    structs = [cls for cls in classes("pilot.envoy", list(pilot.envoy.__path__)) if issubclass(cls, msgspec.Struct)]
    assert len(structs) > 50
    assert [cls.__name__ for cls in structs if not cls.__struct_config__.frozen] == ["LocalityGroup"]

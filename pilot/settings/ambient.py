"""Settings of the ambient mesh: ztunnels, waypoints and HBONE."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from pilot.settings.declaration import setting


@dataclasses.dataclass(frozen=True)
class AmbientSettings:
    """Settings of the ambient mesh. While `enabled` is off, only the variables in `UNGATED` have an effect."""

    enabled: bool = setting(
        False,
        "Enable ambient mode: serve ztunnels and waypoints, and let other proxies use HBONE. The other "
        "settings in this section require it, except ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES.",
        env="PILOT_ENABLE_AMBIENT",
    )
    waypoints: bool = setting(True, "Serve waypoints.", env="PILOT_ENABLE_AMBIENT_WAYPOINTS")
    send_hbone: bool = setting(
        True,
        "Let sidecars and gateways send HBONE to workloads that accept it.",
        env="PILOT_ENABLE_SENDING_HBONE",
    )
    listen_hbone: bool = setting(
        True,
        "Let sidecars accept HBONE if their node metadata sets ENABLE_HBONE.",
        env="PILOT_ENABLE_SIDECAR_LISTENING_HBONE",
    )
    prefer_hbone: bool = setting(
        False,
        "Prefer HBONE to mutual TLS without a tunnel for workloads that accept both.",
        env="PILOT_PREFER_SENDING_HBONE",
    )
    ingress_waypoints: bool = setting(
        True,
        "Let gateways route requests through the waypoint of a service with the label istio.io/ingress-use-waypoint.",
        env="ENABLE_INGRESS_WAYPOINT_ROUTING",
    )
    multi_network: bool = setting(
        False, "Reach workloads in other networks through nested HBONE tunnels.", env="AMBIENT_ENABLE_MULTI_NETWORK"
    )
    status: bool = setting(
        True,
        "Report waypoint bindings and policy enforcement in the status of services and policies.",
        env="AMBIENT_ENABLE_STATUS",
    )
    allow_waypoints: bool = setting(
        False,
        "Let workloads accept traffic from their own waypoints and from the waypoints of their services "
        "without an explicit policy.",
        env="PILOT_AUTO_ALLOW_WAYPOINT_POLICY",
    )
    dry_run_policies: bool = setting(
        False,
        "Send policies with the annotation istio.io/dry-run to ztunnels, which evaluate but do not enforce them.",
        env="AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY",
    )
    multi_network_waypoints: bool = setting(
        True, "Let waypoints reach other networks.", env="AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT"
    )
    multi_network_ingress: bool = setting(
        False, "Let gateways reach other networks.", env="AMBIENT_ENABLE_MULTI_NETWORK_INGRESS"
    )
    baggage: bool = setting(
        False,
        "Let waypoints and the clients of tunnels exchange the metadata of peers in the header `baggage`, so that "
        "telemetry names peers in other networks. Clusters that originate TLS or send the PROXY protocol are excluded.",
        env="AMBIENT_ENABLE_BAGGAGE",
    )
    layered_policies: bool = setting(
        False,
        "If a policy selects a waypoint or a sidecar, apply it to the HBONE tunnels that the proxy terminates.",
        env="ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES",
    )
    wildcard_tls: bool = setting(
        False,
        "Let waypoints forward TLS to the host in its SNI, for ServiceEntries with the resolution DYNAMIC_DNS. "
        "The SNI is not verified: a client may reach any host that it names.",
        env="ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS",
    )
    stream_window: int = setting(
        0,
        "Initial HTTP/2 stream window for HBONE, in bytes. 0 means Envoy's default.",
        env="PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE",
    )
    connection_window: int = setting(
        0,
        "Initial HTTP/2 connection window for HBONE, in bytes. 0 means Envoy's default.",
        env="PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE",
    )


UNGATED = ("PILOT_ENABLE_AMBIENT", "ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES")
"""Variables that take effect even if the mesh is not ambient."""


def ignored(settings: AmbientSettings, environ: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable that has no effect because the mesh is not ambient."""
    if settings.enabled:
        return []
    names = (f.metadata["env"] for f in dataclasses.fields(settings))
    return [
        f"environment variable {name} is ignored: PILOT_ENABLE_AMBIENT is off"
        for name in names
        if environ.get(name) and name not in UNGATED
    ]

"""Settings of the ambient mesh: ztunnels, waypoints, and tunnels between them and other proxies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from pilot.settings.declaration import setting


@dataclasses.dataclass(frozen=True)
class AmbientSettings:
    """What there is of an ambient mesh. Nothing of it counts while `enabled` is off (`model.ambient`)."""

    enabled: bool = setting(
        False, "Serve ztunnels and waypoints, and let other proxies speak HBONE.", env="PILOT_ENABLE_AMBIENT"
    )
    waypoints: bool = setting(True, "Serve waypoints, where the mesh is ambient.", env="PILOT_ENABLE_AMBIENT_WAYPOINTS")
    send_hbone: bool = setting(
        True,
        "Sidecars and gateways send HBONE to workloads that take it, where the mesh is ambient.",
        env="PILOT_ENABLE_SENDING_HBONE",
    )
    listen_hbone: bool = setting(
        True,
        "Sidecars whose node says ENABLE_HBONE take HBONE, where the mesh is ambient.",
        env="PILOT_ENABLE_SIDECAR_LISTENING_HBONE",
    )
    prefer_hbone: bool = setting(
        False, "Send HBONE to workloads that take mesh mTLS too.", env="PILOT_PREFER_SENDING_HBONE"
    )
    ingress_waypoints: bool = setting(
        True,
        "Gateways send to the waypoints of services labelled istio.io/ingress-use-waypoint, where the mesh is ambient.",
        env="ENABLE_INGRESS_WAYPOINT_ROUTING",
    )
    multi_network: bool = setting(
        False, "Reach workloads of other networks through tunnels in tunnels.", env="AMBIENT_ENABLE_MULTI_NETWORK"
    )
    status: bool = setting(
        True, "Tell services and policies in their status who serves and enforces them.", env="AMBIENT_ENABLE_STATUS"
    )
    allow_waypoints: bool = setting(
        False,
        "Workloads let the waypoints in that they or their services use, without a policy that says so.",
        env="PILOT_AUTO_ALLOW_WAYPOINT_POLICY",
    )
    dry_run_policies: bool = setting(
        False,
        "Ztunnels get policies that are only counted (annotation istio.io/dry-run).",
        env="AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY",
    )
    multi_network_waypoints: bool = setting(
        True, "Waypoints reach other networks.", env="AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT"
    )
    multi_network_ingress: bool = setting(
        False, "Gateways reach other networks.", env="AMBIENT_ENABLE_MULTI_NETWORK_INGRESS"
    )
    layered_policies: bool = setting(
        False,
        "Waypoints apply the policies that select their workload to tunnels too.",
        env="ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES",
    )
    stream_window: int = setting(
        0,
        "Bytes that a stream of HBONE may have in flight. 0: Envoy's default.",
        env="PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE",
    )
    connection_window: int = setting(
        0,
        "Bytes that a connection of HBONE may have in flight. 0: Envoy's default.",
        env="PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE",
    )


UNGATED = ("PILOT_ENABLE_AMBIENT", "ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES")
"""Variables that count whether the mesh is ambient or not."""


def ignored(settings: AmbientSettings, environ: Mapping[str, str]) -> list[str]:
    """Returns a warning for each variable that has no effect because the mesh is not ambient."""
    if settings.enabled:
        return []
    names = (f.metadata["env"] for f in dataclasses.fields(settings))
    return [
        f"environment variable {name} is ignored: PILOT_ENABLE_AMBIENT is off"
        for name in names
        if environ.get(name) and name not in UNGATED
    ]

"""Tests whether ambient features are enabled. All are disabled if ambient mode is disabled."""

from __future__ import annotations

from pilot.settings.ambient import AmbientSettings


def serves_waypoints(ambient: AmbientSettings) -> bool:
    """Return True if the control plane configures waypoints."""
    return ambient.enabled and ambient.waypoints


def sends_hbone(ambient: AmbientSettings) -> bool:
    """Return True if sidecars and gateways send HBONE."""
    return ambient.enabled and ambient.send_hbone


def listens_for_hbone(ambient: AmbientSettings) -> bool:
    """Return True if sidecars may accept HBONE."""
    return ambient.enabled and ambient.listen_hbone


def prefers_hbone(ambient: AmbientSettings) -> bool:
    """Return True if HBONE takes precedence over mesh mTLS."""
    return ambient.enabled and ambient.prefer_hbone


def ingress_enters_waypoints(ambient: AmbientSettings) -> bool:
    """Return True if gateways send traffic through the waypoints of the services that request it."""
    return ambient.enabled and ambient.ingress_waypoints


def uses_double_hbone(ambient: AmbientSettings) -> bool:
    """Return True if clients use double HBONE to reach other networks."""
    return ambient.enabled and ambient.multi_network


def exchanges_baggage(ambient: AmbientSettings) -> bool:
    """Return True if the ends of tunnels describe themselves in the header `baggage`."""
    return ambient.enabled and ambient.baggage


def waypoints_use_double_hbone(ambient: AmbientSettings) -> bool:
    """Return True if waypoints are configured for double HBONE. This is independent of the number of networks."""
    return ambient.enabled and ambient.multi_network_waypoints


def gateways_use_double_hbone(ambient: AmbientSettings) -> bool:
    """Return True if gateways are configured for double HBONE."""
    return uses_double_hbone(ambient) and ambient.multi_network_ingress

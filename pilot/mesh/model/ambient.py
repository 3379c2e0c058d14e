"""Says what counts of the settings of an ambient mesh: nothing while it is off."""

from __future__ import annotations

from pilot.settings.ambient import AmbientSettings


def serves_waypoints(ambient: AmbientSettings) -> bool:
    return ambient.enabled and ambient.waypoints


def sends_hbone(ambient: AmbientSettings) -> bool:
    """Returns whether sidecars and gateways send HBONE."""
    return ambient.enabled and ambient.send_hbone


def listens_for_hbone(ambient: AmbientSettings) -> bool:
    """Returns whether sidecars may take HBONE."""
    return ambient.enabled and ambient.listen_hbone


def prefers_hbone(ambient: AmbientSettings) -> bool:
    """Returns whether HBONE comes before mesh mTLS."""
    return ambient.enabled and ambient.prefer_hbone


def enters_waypoints(ambient: AmbientSettings) -> bool:
    """Returns whether gateways send to the waypoints of services that ask for that."""
    return ambient.enabled and ambient.ingress_waypoints


def crosses_networks(ambient: AmbientSettings) -> bool:
    """Returns whether other networks are reached by tunnels in tunnels."""
    return ambient.enabled and ambient.multi_network


def waypoints_cross(ambient: AmbientSettings) -> bool:
    """Returns whether waypoints have what tunnels in tunnels need, which they have in a mesh of one network too."""
    return ambient.enabled and ambient.multi_network_waypoints


def gateways_cross(ambient: AmbientSettings) -> bool:
    """Returns whether gateways have what tunnels in tunnels need."""
    return crosses_networks(ambient) and ambient.multi_network_ingress

"""GatewayClasses that belong to this control plane, and the properties of their Gateways."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.kinds.gateway_api import GATEWAY_CLASS
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.mesh.tables.database import Mesh

REMOTE_CLASS, REMOTE_CONTROLLER = "istio-remote", "istio.io/unmanaged-gateway"
WAYPOINT_CLASS, WAYPOINT_CONTROLLER = "istio-waypoint", "istio.io/mesh-controller"
EAST_WEST_CLASS, EAST_WEST_CONTROLLER = "istio-east-west", "istio.io/eastwest-controller"


class GatewayClassInfo(NamedTuple):
    """Properties of a GatewayClass.

    - `programmed`: whether this control plane configures Gateways of the class.
    - `listener_sets`: whether ListenerSets may attach to these Gateways.
    - `suffix`: whether deployments are named `GATEWAY-CLASS` instead of `GATEWAY`.
    - `addresses`: the type of internal address to report if there are no external addresses. "" means any type.
    - `tunnels`: whether listeners accept HBONE.
    """

    name: str
    controller: str
    description: str
    programmed: bool = True
    listener_sets: bool = True
    suffix: bool = True
    addresses: str = "Hostname"
    tunnels: bool = False


def built_in_classes(db: Mesh) -> dict[str, GatewayClassInfo]:
    """Return the built-in classes, keyed by name."""
    settings = db.settings.gateway_api
    default = GatewayClassInfo(settings.default_class, settings.controller, "The default Istio GatewayClass")
    remote = GatewayClassInfo(
        REMOTE_CLASS,
        REMOTE_CONTROLLER,
        "Remote to this cluster. Does not deploy or affect configuration.",
        programmed=False,
        listener_sets=False,
    )
    classes = [default, remote] if settings.remote_gateways else [default]
    ambient = db.settings.ambient
    if ambient.enabled and ambient.waypoints:
        text = "The default Istio waypoint GatewayClass"
        classes.append(
            GatewayClassInfo(
                WAYPOINT_CLASS, WAYPOINT_CONTROLLER, text, listener_sets=False, suffix=False, addresses="", tunnels=True
            )
        )
    if ambient.enabled and ambient.multi_network:
        text = "The default GatewayClass for Istio East West Gateways"
        classes.append(
            GatewayClassInfo(
                EAST_WEST_CLASS,
                EAST_WEST_CONTROLLER,
                text,
                listener_sets=False,
                suffix=False,
                addresses="",
                tunnels=True,
            )
        )
    return {info.name: info for info in classes}


@derived
def gateway_class(db: Mesh, name: str) -> GatewayClassInfo | None:
    """Return the class with a name, or None if it does not exist or belongs to another controller.

    As in istiod, the name of a built-in class keeps its meaning even if a GatewayClass object with that name belongs to
    another controller.
    """
    if not db.settings.gateway_api.enabled:
        return None
    built_in = built_in_classes(db)
    row = GATEWAY_CLASS.get(db, ObjectKey("", name))
    if row is None:
        return built_in.get(name)
    by_controller = {candidate.controller: candidate for candidate in built_in.values()}
    info = by_controller.get(row.spec.controller_name)
    return info._replace(name=name) if info is not None else built_in.get(name)


def is_foreign_class(db: Mesh, name: str) -> bool:
    """Return True if a GatewayClass object belongs to another controller, which is then responsible for its status."""
    row = GATEWAY_CLASS.get(db, ObjectKey("", name))
    return row is not None and row.spec.controller_name not in {
        info.controller for info in built_in_classes(db).values()
    }

"""GatewayClasses: which of them are for this control plane, and what Gateways of a class get."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.kinds.gateway_api import GATEWAY_CLASS
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.mesh.tables.database import Mesh

REMOTE_CLASS, REMOTE_CONTROLLER = "istio-remote", "istio.io/unmanaged-gateway"
WAYPOINT_CLASS, WAYPOINT_CONTROLLER = "istio-waypoint", "istio.io/mesh-controller"
EAST_WEST_CLASS, EAST_WEST_CONTROLLER = "istio-east-west", "istio.io/eastwest-controller"


class ClassInfo(NamedTuple):
    """A class of Gateways. `programmed`: its Gateways are configured here; `suffix`: what is deployed for one is named after its class too.

    `addresses`: the type of addresses that are told where there are none from outside; "" for both. `tunnels`: its listeners take HBONE."""

    name: str
    controller: str
    description: str
    programmed: bool = True
    listener_sets: bool = True
    suffix: bool = True
    addresses: str = "Hostname"
    tunnels: bool = False


def known_classes(db: Mesh) -> dict[str, ClassInfo]:
    """Returns the classes that exist without any object, by name."""
    settings = db.settings.gateway_api
    own = ClassInfo(settings.default_class, settings.controller, "The default Istio GatewayClass")
    remote = ClassInfo(
        REMOTE_CLASS,
        REMOTE_CONTROLLER,
        "Remote to this cluster. Does not deploy or affect configuration.",
        programmed=False,
        listener_sets=False,
    )
    found = [own, remote] if settings.remote_gateways else [own]
    ambient = db.settings.ambient
    if ambient.enabled and ambient.waypoints:
        text = "The default Istio waypoint GatewayClass"
        found.append(
            ClassInfo(
                WAYPOINT_CLASS, WAYPOINT_CONTROLLER, text, listener_sets=False, suffix=False, addresses="", tunnels=True
            )
        )
    if ambient.enabled and ambient.multi_network:
        text = "The default GatewayClass for Istio East West Gateways"
        found.append(
            ClassInfo(
                EAST_WEST_CLASS,
                EAST_WEST_CONTROLLER,
                text,
                listener_sets=False,
                suffix=False,
                addresses="",
                tunnels=True,
            )
        )
    return {one.name: one for one in found}


@derived
def gateway_class(db: Mesh, name: str) -> ClassInfo | None:
    """Returns the class of a name; None where it is another controller's, or nobody's. A name that exists without any object stays what it is,
    though an object of that name is for another controller, as in istiod."""
    if not db.settings.gateway_api.enabled:
        return None
    known = known_classes(db)
    found = GATEWAY_CLASS.get(db, ObjectKey("", name))
    if found is None:
        return known.get(name)
    by_controller = {one.controller: one for one in known.values()}
    info = by_controller.get(found.spec.controller_name)
    return info._replace(name=name) if info is not None else known.get(name)


def is_another_controllers(db: Mesh, name: str) -> bool:
    """Returns whether there is a GatewayClass of this name that is for another controller, whose status it is."""
    found = GATEWAY_CLASS.get(db, ObjectKey("", name))
    return found is not None and found.spec.controller_name not in {
        one.controller for one in known_classes(db).values()
    }

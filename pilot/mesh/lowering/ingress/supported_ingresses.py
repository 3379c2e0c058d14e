"""The Ingresses that belong to this control plane, according to their class and the mesh's ingress mode."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.kinds.kubernetes import INGRESS, INGRESS_CLASS
from pilot.config.kubernetes.ingress import Ingress
from pilot.config.object import Object, ObjectKey
from pilot.derive import Gather, derived, hub
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config

CLASS, CONTROLLER = "kubernetes.io/ingress.class", "istio.io/ingress-controller"
DEFAULT_SERVICE, DEFAULT_SELECTOR = "istio-ingressgateway", "ingressgateway"


class IngressMode(NamedTuple):
    """The settings for Ingresses in the mesh config. `selector` is the value of the `istio` label on their routers."""

    mode: str
    class_name: str
    selector: str


@hub
def ingress_mode(db: Mesh) -> IngressMode:
    """Return the settings for Ingresses in the mesh config."""
    mesh = mesh_config(db)
    service = mesh.ingress_service if mesh.ingress_service not in ("", DEFAULT_SERVICE) else DEFAULT_SELECTOR
    return IngressMode(mesh.ingress_controller_mode, mesh.ingress_class, mesh.ingress_selector or service)


@derived
def supported_ingress(db: Mesh, key: ObjectKey) -> Object[Ingress] | None:
    """Return an Ingress, or None if it does not exist or belongs to another controller."""
    row = INGRESS.get(db, key)
    return row if row is not None and _is_ours(db, row, ingress_mode(db)) else None


def _is_ours(db: Mesh, row: Object[Ingress], mode: IngressMode) -> bool:
    """Return True if an Ingress belongs to this control plane.

    The annotation takes precedence over the IngressClass. Without either, the ingress mode decides.
    """
    if mode.mode == "OFF":
        return False
    if CLASS in row.annotations:
        return row.annotations[CLASS] == mode.class_name
    class_name = row.spec.ingress_class_name
    ingress_class = INGRESS_CLASS.get(db, ObjectKey("", class_name)) if class_name is not None else None
    return ingress_class.spec.controller == CONTROLLER if ingress_class is not None else mode.mode == "DEFAULT"


@derived
def _keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return INGRESS.all_keys(db) if ingress_mode(db).mode != "OFF" else ()


supported_ingresses: Gather[ObjectKey, [], Object[Ingress]] = Gather("supported_ingresses", _keys, supported_ingress)

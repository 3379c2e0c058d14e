"""Ingresses that are for this control plane: by their class, and the mesh's mode."""

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
    """What the mesh config says of Ingresses. `selector`: the label `istio` of the routers that they are for."""

    mode: str
    class_name: str
    selector: str


@hub
def ingress_mode(db: Mesh) -> IngressMode:
    """Returns what the mesh config says of Ingresses."""
    mesh = mesh_config(db)
    service = mesh.ingress_service if mesh.ingress_service not in ("", DEFAULT_SERVICE) else DEFAULT_SELECTOR
    return IngressMode(mesh.ingress_controller_mode, mesh.ingress_class, mesh.ingress_selector or service)


@derived
def supported_ingress(db: Mesh, key: ObjectKey) -> Object[Ingress] | None:
    """Returns an Ingress; None where it is for somebody else."""
    row = INGRESS.get(db, key)
    return row if row is not None and _is_ours(db, row, ingress_mode(db)) else None


def _is_ours(db: Mesh, row: Object[Ingress], said: IngressMode) -> bool:
    """Returns whether an Ingress is for this control plane. Its annotation counts before its class; without either the mode decides."""
    if said.mode == "OFF":
        return False
    if CLASS in row.annotations:
        return row.annotations[CLASS] == said.class_name
    named = row.spec.ingress_class_name
    found = INGRESS_CLASS.get(db, ObjectKey("", named)) if named is not None else None
    return found.spec.controller == CONTROLLER if found is not None else said.mode == "DEFAULT"


@derived
def _keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return INGRESS.all_keys(db) if ingress_mode(db).mode != "OFF" else ()


supported_ingresses: Gather[ObjectKey, [], Object[Ingress]] = Gather("supported_ingresses", _keys, supported_ingress)

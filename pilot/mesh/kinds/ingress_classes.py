"""Every IngressClass."""

from __future__ import annotations

from pilot.config.kubernetes.ingress import IngressClass
from pilot.mesh.kinds.view import KindView

ingress_classes = KindView[IngressClass]("IngressClass", lambda db: db.ingress_classes)

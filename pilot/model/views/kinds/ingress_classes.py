"""Every IngressClass."""

from __future__ import annotations

from pilot.model.config.ingress import IngressClass
from pilot.model.views.kinds.view import KindView

ingress_classes = KindView[IngressClass]("IngressClass", lambda db: db.ingress_classes)

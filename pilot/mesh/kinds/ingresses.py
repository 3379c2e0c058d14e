"""Every Ingress."""

from __future__ import annotations

from pilot.config.kubernetes.ingress import Ingress
from pilot.mesh.kinds.view import KindView

ingresses = KindView[Ingress]("Ingress", lambda db: db.ingresses)

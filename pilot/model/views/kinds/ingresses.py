"""Every Ingress."""

from __future__ import annotations

from pilot.model.config.ingress import Ingress
from pilot.model.views.kinds.view import KindView

ingresses = KindView[Ingress]("Ingress", lambda db: db.ingresses)

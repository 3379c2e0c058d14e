"""Every ServiceEntry, those among them that XBackends become, where alpha kinds are obeyed."""

from __future__ import annotations

from pilot.config.networking.service_entry import ServiceEntry
from pilot.mesh.kinds.view import KindView
from pilot.mesh.lowering.gateway_api.external_backends import service_entries_of_backends

service_entries = KindView[ServiceEntry](
    "ServiceEntry",
    lambda db: db.service_entries,
    service_entries_of_backends,
    derives=lambda db: db.settings.gateway_api.alpha,
)

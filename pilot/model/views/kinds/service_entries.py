"""Every ServiceEntry, those among them that XBackends become, where alpha kinds are obeyed."""

from __future__ import annotations

from pilot.model.config.service_entry import ServiceEntry
from pilot.model.views.gateway_api.external_backends import service_entries_of_backends
from pilot.model.views.kinds.view import KindView

service_entries = KindView[ServiceEntry](
    "ServiceEntry",
    lambda db: db.service_entries,
    service_entries_of_backends,
    derives=lambda db: db.settings.gateway_api.alpha,
)

"""Every DestinationRule."""
from __future__ import annotations

from pilot.model.config.destination_rule import DestinationRule
from pilot.model.views.kinds.view import KindView

destination_rules = KindView[DestinationRule]("DestinationRule", lambda db: db.destination_rules)

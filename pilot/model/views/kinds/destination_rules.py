"""Every DestinationRule, those among them that policies of the Gateway API become."""

from __future__ import annotations

from pilot.model.config.destination_rule import DestinationRule
from pilot.model.views.gateway_api.destination_rules import rules_of_policies
from pilot.model.views.kinds.view import KindView

destination_rules = KindView[DestinationRule]("DestinationRule", lambda db: db.destination_rules, rules_of_policies)

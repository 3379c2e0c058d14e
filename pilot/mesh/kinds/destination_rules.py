"""Every DestinationRule, those among them that policies of the Gateway API become."""

from __future__ import annotations

from pilot.config.networking.destination_rule import DestinationRule
from pilot.mesh.kinds.view import KindView
from pilot.mesh.lowering.gateway_api.destination_rules import rules_of_policies

destination_rules = KindView[DestinationRule]("DestinationRule", lambda db: db.destination_rules, rules_of_policies)

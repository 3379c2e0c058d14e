"""Validation of DestinationRules."""

from __future__ import annotations

from pilot.config.networking.destination_rule import DestinationRule, Subset
from pilot.config.object import Object
from pilot.config.problem import Problems, below, error
from pilot.config.validation import rules
from pilot.config.validation.expansion import check_destination_rule
from pilot.config.validation.traffic.traffic_policy import validate_traffic_policy


def validate_destination_rule(o: Object[DestinationRule]) -> Problems:
    yield from below("spec", check_destination_rule(o.spec))
    yield from below("spec", _validate(o.spec, o.namespace))


def _validate(rule: DestinationRule, namespace: str) -> Problems:
    yield from rules.check_host("host", rule.host)
    if rule.traffic_policy is not None:
        yield from below("trafficPolicy", validate_traffic_policy(rule.traffic_policy, namespace))
    names: set[str] = set()
    for index, subset in enumerate(rule.subsets):
        if subset.name in names:
            yield error("duplicate-name", f"subsets[{index}].name", f"duplicate {subset.name!r}")
        names.add(subset.name)
        yield from below(f"subsets[{index}]", _validate_subset(subset, namespace))
    yield from rules.check_export_to("exportTo", rule.export_to, namespace)
    if (selector := rule.workload_selector) is not None:
        yield from rules.check_selector("workloadSelector", selector.match_labels, "matchLabels")
        if rule.export_to and {namespace if name == "." else name for name in rule.export_to} != {namespace}:
            yield error(
                "export-with-selector", "exportTo", "a rule with a workloadSelector applies only to its own namespace"
            )


def _validate_subset(subset: Subset, namespace: str) -> Problems:
    if not rules.is_dns_label(subset.name):
        yield error("bad-subset-name", "name", f"{subset.name!r}: must be 1 to 63 letters, digits and hyphens")
    yield from rules.check_labels("labels", subset.labels)
    if subset.traffic_policy is not None:
        yield from below("trafficPolicy", validate_traffic_policy(subset.traffic_policy, namespace))

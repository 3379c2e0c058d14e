"""Validation of Kubernetes label selectors.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

from pilot.config.problem import Problems, each, error
from pilot.config.selector import LabelSelector, LabelSelectorRequirement

_WITH_VALUES, _WITHOUT = ("In", "NotIn"), ("Exists", "DoesNotExist")


def validate_label_selector(selector: LabelSelector) -> Problems:
    yield from each("matchExpressions", selector.match_expressions, _check_requirement)


def _check_requirement(requirement: LabelSelectorRequirement) -> Problems:
    if not requirement.key:
        yield error("missing-field", "key", "a label key is required")
    if requirement.operator not in (*_WITH_VALUES, *_WITHOUT):
        yield error(
            "bad-operator",
            "operator",
            f"{requirement.operator!r}: expected one of {', '.join((*_WITH_VALUES, *_WITHOUT))}",
        )
    elif requirement.operator in _WITH_VALUES and not requirement.values:
        yield error("missing-field", "values", f"{requirement.operator} requires values")
    elif requirement.operator in _WITHOUT and requirement.values:
        yield error("bad-values", "values", f"{requirement.operator} does not take values")

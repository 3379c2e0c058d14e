"""Validation of the selectors and target references of policies."""

from __future__ import annotations

from pilot.config.problem import Problems, below, each, error
from pilot.config.selector import PolicyTargetReference, WorkloadSelector
from pilot.config.validation import rules

_TARGETS = frozenset(
    {
        ("", "Service"),
        ("core", "Service"),
        ("networking.istio.io", "ServiceEntry"),
        ("gateway.networking.k8s.io", "Gateway"),
        ("gateway.networking.k8s.io", "GatewayClass"),
    }
)


def check_attachment(
    selector: WorkloadSelector | None, target: PolicyTargetReference | None, targets: tuple[PolicyTargetReference, ...]
) -> Problems:
    """Yield the problems of a policy's selector and target references. At most one of these fields may be set."""
    if (selector is not None) + (target is not None) + bool(targets) > 1:
        yield error("exclusive-fields", "", "only one of selector, targetRef and targetRefs may be set")
    if selector is not None:
        yield from rules.check_selector("selector", selector.match_labels, "matchLabels")
    if target is not None:
        yield from below("targetRef", _check_target(target))
    yield from check_targets(targets)


def check_targets(targets: tuple[PolicyTargetReference, ...]) -> Problems:
    """Yield the problems of a policy's target references."""
    yield from each("targetRefs", targets, _check_target)


def _check_target(target: PolicyTargetReference) -> Problems:
    if not target.name:
        yield error("missing-field", "name", "a name is required")
    if target.namespace:
        yield error("not-supported", "namespace", "must not be set: targets are in the namespace of the policy")
    if (target.group, target.kind) not in _TARGETS:
        yield error(
            "bad-target",
            "kind",
            f"{target.group}/{target.kind}: expected a Service, ServiceEntry, Gateway or GatewayClass",
        )

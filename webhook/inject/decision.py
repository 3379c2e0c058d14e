"""Decides whether to inject a Pod. https://istio.io/latest/docs/setup/additional-setup/sidecar-injection/"""

from __future__ import annotations

from typing import Any

from pilot.config.selector import LabelSelector
from pilot.config.validation.label_selector import validate_label_selector
from pilot.lib.logging.log import scope
from pilot.mesh.model.visibility import selects
from webhook.inject.annotations import INJECT
from webhook.inject.config import WrittenConfig

IGNORED_NAMESPACES = frozenset({"kube-system", "kube-public", "kube-node-lease", "local-path-storage"})
_log = scope("webhook")


def is_injected(pod: dict[str, Any], config: WrittenConfig) -> bool:
    """Return whether a Pod gets a proxy.

    The exclusions are checked first. Then the Pod's label or annotation, the selectors and the policy are checked in
    this order.
    """
    metadata = pod.get("metadata") or {}
    if (pod.get("spec") or {}).get("hostNetwork") or metadata.get("namespace") in IGNORED_NAMESPACES:
        return False
    choice = _wish(metadata)
    if choice is None:
        choice = _by_selectors(metadata.get("labels") or {}, config)
    if config.policy not in ("enabled", "disabled"):
        _log.error("policy %r is neither enabled nor disabled: no pod is injected", config.policy)
        return False
    return choice if choice is not None else config.policy == "enabled"


def _wish(metadata: dict[str, Any]) -> bool | None:
    """Return the boolean value of a Pod's inject label or annotation, or None if there is no valid value."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    value = labels[INJECT] if INJECT in labels else annotations.get(INJECT, "")
    if value not in ("true", "false", ""):
        _log.warning("invalid value for %s: %r; only 'true' and 'false' are accepted", INJECT, value)
    return {"true": True, "false": False}.get(value)


def _by_selectors(labels: dict[str, str], config: WrittenConfig) -> bool | None:
    if any(_selects(selector, labels) for selector in config.never_inject_selector):
        return False
    return True if any(_selects(selector, labels) for selector in config.always_inject_selector) else None


def _selects(selector: LabelSelector, labels: dict[str, str]) -> bool:
    """Return whether a selector matches labels. Empty and invalid selectors match nothing."""
    if not selector.match_labels and not selector.match_expressions:
        return False
    if any(validate_label_selector(selector)):
        _log.warning("invalid selector in the injector's configuration: %s", selector)
        return False
    return selects(selector, labels)

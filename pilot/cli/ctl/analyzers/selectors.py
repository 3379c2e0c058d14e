"""Label selectors of webhook configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pilot.config.selector import LabelSelector
from pilot.mesh.model.visibility import selects


def parse_selector(value: Any) -> LabelSelector | None:
    """Return the selector in a field, which selects everything if it is absent. Return None if it is invalid."""
    try:
        return msgspec.convert(value or {}, LabelSelector)
    except msgspec.ValidationError:
        return None


class WebhookSelectors:
    """The selectors of a webhook."""

    def __init__(self, webhook: Mapping[str, Any]) -> None:
        self.namespaces = parse_selector(webhook.get("namespaceSelector"))
        self.objects = parse_selector(webhook.get("objectSelector"))

    def match(self, namespace: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Return whether the webhook is called for an object with these labels in a namespace with these labels."""
        return (
            self.namespaces is not None
            and self.objects is not None
            and selects(self.namespaces, namespace)
            and selects(self.objects, labels)
        )

    def values(self, label: str) -> set[str]:
        """Return the values of a label that the selectors ask for."""
        both = [selector for selector in (self.namespaces, self.objects) if selector is not None]
        expressions = [e for s in both for e in s.match_expressions if e.key == label and e.operator == "In"]
        listed = {value for expression in expressions for value in expression.values}
        return listed | {s.match_labels[label] for s in both if label in s.match_labels}

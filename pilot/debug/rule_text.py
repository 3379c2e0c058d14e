"""The rules of AuthorizationPolicies as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pilot.config.builtins import to_builtins
from pilot.config.security.authorization_policy import Operation, Rule
from pilot.lib.text import cut

MAX_ITEMS = 10
"""Maximum number of items of a list that are shown."""
MAX_TEXT = 300
"""Maximum number of characters in a text."""


def show_rule(rule: Rule) -> dict[str, Any]:
    """Return the conditions of a rule as text. An empty list means that there is no condition."""
    return {
        "from": [text for origin in rule.from_[:MAX_ITEMS] if (text := _fields_text(to_builtins(origin.source)))],
        "to": [text for to in rule.to[:MAX_ITEMS] if (text := _fields_text(to_builtins(to.operation)))],
        "when": [
            f"{c.key} = {_listed(c.values)}" if c.values else f"{c.key} ≠ {_listed(c.not_values)}"
            for c in rule.when[:MAX_ITEMS]
        ],
    }


def requests_text(rule: Rule) -> str:
    """Return the requests that a rule matches as a short text without callers, such as "GET, POST /v1/*"."""
    texts = [_operation_text(to.operation) for to in rule.to[:MAX_ITEMS] if to.operation is not None]
    text = " or ".join(dict.fromkeys(texts)) or "every request"
    conditions = [
        f"{c.key} {'is' if c.values else 'is not'} {_listed(c.values or c.not_values)}" for c in rule.when[:MAX_ITEMS]
    ]
    return cut(f"{text} if {' and '.join(conditions)}" if conditions else text, MAX_TEXT)


_WORDS = {
    "principals": "principal",
    "namespaces": "namespace",
    "serviceAccounts": "service account",
    "requestPrincipals": "token of",
    "ipBlocks": "address",
    "remoteIpBlocks": "client address",
    "trustDomains": "trust domain",
    "hosts": "host",
    "ports": "port",
    "methods": "method",
    "paths": "path",
}


def _fields_text(fields: Mapping[str, Any] | None) -> str:
    parts = []
    for name, values in (fields or {}).items():
        positive = name.removeprefix("not")
        word = positive[:1].lower() + positive[1:]
        parts.append(f"{'not ' if positive != name else ''}{_WORDS.get(word, word)} {_listed(values)}")
    return cut(" and ".join(parts), MAX_TEXT)


def _operation_text(operation: Operation) -> str:
    words = {"port": operation.ports, "host": operation.hosts}
    for name in ("methods", "paths", "ports", "hosts"):
        words[f"{name} other than"] = getattr(operation, f"not_{name}")
    parts = [_listed(operation.methods), _listed(operation.paths)]
    parts += [f"{word} {_listed(values)}" for word, values in words.items() if values]
    return " ".join(part for part in parts if part)


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(str(value)[:MAX_TEXT] for value in values[:MAX_ITEMS]) + (" …" if len(values) > MAX_ITEMS else "")

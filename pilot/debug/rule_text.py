"""The rules of AuthorizationPolicies as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilot.config.builtins import to_builtins
from pilot.config.security.authorization_policy import Rule
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
            f"{c.key} = {', '.join(c.values[:MAX_ITEMS])}"
            if c.values
            else f"{c.key} ≠ {', '.join(c.not_values[:MAX_ITEMS])}"
            for c in rule.when[:MAX_ITEMS]
        ],
    }


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
        listed = ", ".join(map(str, values[:MAX_ITEMS])) + (" …" if len(values) > MAX_ITEMS else "")
        parts.append(f"{'not ' if positive != name else ''}{_WORDS.get(word, word)} {listed}")
    return cut(" and ".join(parts), MAX_TEXT)

"""Rules of schemas in CEL, with the functions that an API server adds to the language.

https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-cel-libraries
"""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import cel


def broken_rules(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the messages of the rules of a schema that a value breaks; a rule that cannot be evaluated is broken."""
    for rule in schema.get("x-kubernetes-validations", ()):
        try:
            holds = _compiled(rule["rule"]).execute(_context(value))
        except (ValueError, TypeError, RuntimeError) as fault:
            yield f"{rule.get('message', rule['rule'])}: {fault}"
        else:
            if holds is not True:
                yield str(rule.get("message") or f"failed rule: {rule['rule']}")


@functools.cache
def _compiled(rule: str) -> Any:
    return cel.compile(rule)


def _context(value: Any) -> Any:
    context = cel.Context({"self": value})
    functions: dict[str, Any] = {
        "substring": _substring,
        "url": _url,
        "isURL": _is_url,
        "getScheme": lambda url: url["scheme"],
    }
    for name, function in functions.items():
        context.add_function(name, function)
    return context


def _substring(text: str, start: int, end: int) -> str:
    if not 0 <= start <= end <= len(text):
        raise ValueError("index out of range")
    return text[start:end]


def _is_url(text: str) -> bool:
    return bool(urllib.parse.urlsplit(text).scheme) or text.startswith("/")


def _url(text: str) -> dict[str, str]:
    if not _is_url(text):
        raise ValueError(f"URL parse error during conversion from string: {text}")
    return {"scheme": urllib.parse.urlsplit(text).scheme}

"""CEL rules of schemas, with the functions that an API server adds to the language.

https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-cel-libraries
"""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import cel


def rule_violations(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the messages of the rules that a value violates. A rule that cannot be evaluated is violated."""
    for rule in schema.get("x-kubernetes-validations", ()):
        try:
            result = _compiled(rule["rule"]).execute(_context(value))
        except (ValueError, TypeError, RuntimeError) as error:
            yield f"{rule.get('message', rule['rule'])}: {error}"
        else:
            if result is not True:
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

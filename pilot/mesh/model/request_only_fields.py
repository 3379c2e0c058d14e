"""Fields of AuthorizationPolicy rules that match HTTP requests and cannot be evaluated for connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pilot.config.base import json_name
from pilot.config.security.authorization_policy import Operation, Rule, Source

_OPERATION = ("hosts", "not_hosts", "methods", "not_methods", "paths", "not_paths")
_SOURCE = (
    "request_principals",
    "not_request_principals",
    "remote_ip_blocks",
    "not_remote_ip_blocks",
    "trust_domains",
    "not_trust_domains",
)
CONNECTION_CONDITIONS = frozenset(
    ("source.ip", "source.namespace", "source.principal", "destination.ip", "destination.port")
)
"""Condition keys that can be evaluated for connections."""


class RequestOnlyField(NamedTuple):
    """A field that cannot be evaluated for connections: its path in the rule and its name."""

    path: str
    name: str


def request_only_fields(rule: Rule) -> Iterator[RequestOnlyField]:
    """Yield the fields of a rule that cannot be evaluated for connections."""
    for index, to in enumerate(rule.to):
        for field in request_only_operation_fields(to.operation or Operation()):
            yield RequestOnlyField(f"to[{index}].operation.{field}", field)
    for index, from_ in enumerate(rule.from_):
        for field in request_only_source_fields(from_.source or Source()):
            yield RequestOnlyField(f"from[{index}].source.{field}", field)
    for index, condition in enumerate(rule.when):
        if condition.key not in CONNECTION_CONDITIONS:
            yield RequestOnlyField(f"when[{index}].key", condition.key)


def request_only_operation_fields(operation: Operation) -> list[str]:
    """Return the fields of an operation that cannot be evaluated for connections."""
    return [json_name(field) for field in _OPERATION if getattr(operation, field)]


def request_only_source_fields(source: Source) -> list[str]:
    """Return the fields of a source that cannot be evaluated for connections."""
    return [json_name(field) for field in _SOURCE if getattr(source, field)]

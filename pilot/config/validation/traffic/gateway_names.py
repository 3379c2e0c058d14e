"""Validation of references from VirtualServices to Gateways."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.problem import Problems, error, warning
from pilot.config.validation import rules


def check_gateway_names(path: str, names: Iterable[str]) -> Problems:
    """Yield a problem for each reference that is not `namespace/name` or, in the same namespace, `name`.

    The name "mesh" is valid too.
    """
    for index, text in enumerate(names):
        place = f"{path}[{index}]"
        namespace, slash, name = text.partition("/")
        if not slash:
            if "." in text:
                name, _, rest = text.partition(".")
                yield warning("legacy-gateway-name", place, f"use {rest.partition('.')[0]}/{name}")
            yield from rules.check_name(place, text)
        elif not rules.is_dns_label(namespace):
            yield error("bad-namespace", place, f"{namespace!r} is not a valid namespace")
        elif not rules.is_dns_label(name):
            yield error("bad-gateway-name", place, f"{name!r} is not a valid Gateway name")

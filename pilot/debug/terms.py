"""The terms for the states of proxies and endpoints. All pages and messages of the dashboard use only these."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from pilot.mesh.model.endpoint import EndpointHealth

TYPE_WORDS = {
    "cds": "clusters",
    "eds": "endpoints",
    "lds": "listeners",
    "rds": "routes",
    "sds": "secrets",
    "ecds": "extensions",
    "nds": "names",
}
"""Names of the resources of each type, by the short name of the type."""
_NAMED = 3
_ENDPOINT_WORDS = {
    EndpointHealth.UNHEALTHY: "not ready",
    EndpointHealth.DRAINING: "draining",
    EndpointHealth.TERMINATING: "terminating",
}


def type_words(types: Iterable[str]) -> str:
    """Return what a proxy receives with some types, or "configuration" if there are none."""
    return " and ".join(dict.fromkeys(TYPE_WORDS.get(name, name) for name in types)) or "configuration"


def rejects(count: int, types: Iterable[str]) -> str:
    """Return the phrase that some proxies reject what they were sent. It follows the name or the number of them."""
    return f"rejects its {type_words(types)}" if count == 1 else f"reject their {type_words(types)}"


def not_responding(count: int) -> str:
    """Return the phrase that some proxies have not acknowledged a response for too long."""
    return "is not responding" if count == 1 else "are not responding"


def since(seconds: float) -> str:
    """Return a phrase with a Unix time, such as " since 2026-01-02 03:04:05 UTC", or "" if it is 0.0."""
    return f" since {datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC" if seconds else ""


def endpoint_word(health: EndpointHealth, conditions: str) -> str:
    """Return the state of an endpoint, as Kubernetes and Envoy name it.

    `conditions` are those in its EndpointSlice, such as "ready: false". An endpoint that is not ready terminates for
    istiod unless a condition says that it does not. For Kubernetes, it terminates only if a condition says so.
    """
    if health is EndpointHealth.TERMINATING and "terminating: true" not in conditions:
        health = EndpointHealth.UNHEALTHY
    return _ENDPOINT_WORDS.get(health, "ready")


def first_names(names: Sequence[str]) -> str:
    """Return the first of some names, and the number of the others."""
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")

"""Proxies that do not respond: what they have not acknowledged, and since when.

All pages and commands that say that a proxy is not responding use this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.debug.sources import ConnectedProxy, Sources
from pilot.debug.terms import not_responding, since, type_words
from pilot.lib.xds_types import short_name

STALE = 10.0
"""Seconds without a response after which a proxy is stale. Before that, its responses are being delivered."""
CODE = "not-responding"
"""The code of problems with proxies that are not responding."""
PROXY = GroupKind("", "Proxy")
"""The kind of proxies in problems. It is not a kind of configuration."""


class Unanswered(NamedTuple):
    """The short names of the types that a proxy has not acknowledged, and the Unix time of the oldest response.

    They are () and 0.0 if there are none.
    """

    types: tuple[str, ...]
    since: float

    def is_silence(self, now: float) -> bool:
        """Return whether the proxy is not responding at a Unix time."""
        return bool(self.since) and now - self.since >= STALE


def unanswered(connection: ConnectedProxy) -> Unanswered:
    """Return what a proxy has neither acknowledged nor rejected."""
    waits = {
        url: watch.sent_at
        for url, watch in connection.subscriptions.items()
        if watch.sent_at and watch.nonce_sent != watch.nonce_acked and not watch.last_error
    }
    return Unanswered(tuple(map(short_name, waits)), min(waits.values(), default=0.0))


def describe_silence(connection: ConnectedProxy, now: float) -> str:
    """Return that a proxy is not responding as a phrase that follows its name, or "" if it is."""
    late = unanswered(connection)
    if not late.is_silence(now):
        return ""
    words = type_words(late.types)
    what = f"its {words}" if connection.has_started else f"its first configuration ({words})"
    return f"{not_responding(1)}: it has not acknowledged {what}{since(late.since)}"


def silent_proxies(sources: Sources, now: float) -> Iterator[Problem | None]:
    """Yield a problem for each proxy that is not responding, and None for the others."""
    for connection in sources.fleet.connections():
        text = describe_silence(connection, now)
        proxy = connection.proxy
        ref = ObjectRef(PROXY, proxy.namespace, proxy.id.removesuffix(f".{proxy.namespace}"))
        yield Problem(code=CODE, object=ref, message=text, severity=Severity.WARNING) if text else None

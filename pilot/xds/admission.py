"""Limits the rate of new streams and the size of their subscriptions, and controls access to configuration objects."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import grpc

from pilot.lib.fair_slots import FairSlots, NoSlot
from pilot.lib.spiffe import parse_identity
from pilot.settings.process import ServeSettings
from pilot.xds.debug_requests import DebugRequestError
from pilot.xds.session.session import Session

MAX_WAIT = 1.0
"""Maximum number of seconds that a new stream waits. A stream that would wait longer is rejected."""


def stream_rate(setting: float, cpus: int | None = None) -> float:
    """Return the rate of new streams that a setting means, or 0 for no limit. 0 in the setting depends on the CPUs."""
    if setting:
        return max(setting, 0.0)
    return float(min(15 + 5 * (len(os.sched_getaffinity(0)) if cpus is None else cpus), 100))


class Admission:
    """Admits `rate` new streams per second, at even intervals. Callers take turns. A rate of 0 disables the limit."""

    def __init__(
        self,
        rate: float,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval = 1 / rate if rate > 0 else 0.0
        self._now, self._sleep = now, sleep
        self._turns = FairSlots(1, max(0, math.ceil(rate * MAX_WAIT) - 1))
        self._free_at = 0.0

    async def admit(self, caller: str) -> bool:
        """Wait until a stream of the caller is admitted, and return True. Return False if the wait would exceed
        `MAX_WAIT`, or if so many streams wait that the caller with the most must give way."""
        if not self._interval:
            return True
        try:
            async with self._turns.slot(caller):
                now = self._now()
                start = max(now, self._free_at)
                if start - now > MAX_WAIT:
                    return False
                self._free_at = start + self._interval
                if start > now:
                    await self._sleep(start - now)
        except NoSlot:
            return False
        return True


class StreamLimits(NamedTuple):
    """Limits for one stream.

    types: Maximum number of subscriptions.
    names: Maximum number of requested names, in all subscriptions together.
    name_bytes: Maximum size in memory of these names and of the types.
    node_bytes: Maximum size of the node, including its labels.
    """

    types: int = 64
    names: int = 50_000
    name_bytes: int = 8 << 20
    node_bytes: int = 512 << 10

    def check_node(self, node: Any) -> str:
        """Return an error message if an envoy.config.core.v3.Node exceeds the limits. Otherwise return ""."""
        size = node.ByteSize()
        return (
            f"the node has {size} bytes; at most {self.node_bytes} are allowed (PILOT_XDS_MAX_NODE_BYTES)"
            if size > self.node_bytes
            else ""
        )

    def check_subscriptions(self, session: Session) -> str:
        """Return an error message if the subscriptions of a stream exceed the limits. Otherwise return ""."""
        if len(session.subscriptions) > self.types:
            return f"the stream subscribes to more than {self.types} types (PILOT_XDS_MAX_TYPES)"
        names = size = 0
        for subscription in session.subscriptions.values():
            names += len(subscription.requested.all) + len(subscription.retained)
            size += subscription.requested.size + subscription.retained_size + sys.getsizeof(subscription.type_url)
        if names > self.names:
            return f"the stream requests {names} resource names; at most {self.names} are allowed (PILOT_XDS_MAX_NAMES)"
        return (
            f"the resource names and types of the stream have {size} bytes; at most {self.name_bytes} are allowed"
            " (PILOT_XDS_MAX_NAME_BYTES)"
            if size > self.name_bytes
            else ""
        )


DEFAULT_STREAM_LIMITS = StreamLimits()


def stream_limits(settings: ServeSettings) -> StreamLimits:
    """Return the limits in the settings."""
    return StreamLimits(settings.max_types, settings.max_names, settings.max_name_bytes, settings.max_node_bytes)


CheckObjectAccess = Callable[[str], None]
"""Checks a client's verified identity, which is "" if it has none.

Raises DebugRequestError if the client may not request configuration objects.
"""


def deny_objects(_: str) -> None:
    """Deny access to configuration objects, which reveal data about the whole mesh."""
    raise DebugRequestError(
        grpc.StatusCode.UNAUTHENTICATED, "configuration objects require an identity in the control plane's namespace"
    )


def allow_objects(_: str) -> None:
    """Allow access to configuration objects."""


def allow_objects_to_namespace(namespace: Callable[[], str]) -> CheckObjectAccess:
    """Return a check that allows access only to identities in one namespace.

    `namespace` returns the namespace that is current at the time of the check.
    """

    def check(identity: str) -> None:
        parsed = parse_identity(identity) if identity else None
        if parsed is None:
            deny_objects(identity)
        elif parsed.namespace != namespace():
            raise DebugRequestError(
                grpc.StatusCode.PERMISSION_DENIED,
                "configuration objects require an identity in the control plane's namespace",
            )

    return check

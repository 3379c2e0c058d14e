"""A stream's subscriptions to types."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from pilot.lib.xds_types import XdsType
from pilot.xds.session.name_sets import Names
from pilot.xds.session.snapshot import TypeState

WILDCARD = frozenset({"*"})
NO_NAMES: frozenset[str] = frozenset()
NO_VERSIONS: Mapping[str, str] = MappingProxyType({})


class Subscription:
    """The subscription of a stream to one type.

    requested: Names that the proxy requests. If `wildcard` is set, it also requests everything else.
    sent_state: State of the type as of the last response.
    owes_all, owed: Resources to send although they did not change: all of them, or those with these names.
    held_names: Names that become owed when the proxy has acknowledged the clusters that wait for them.
    retained: Names that a reconnecting client still has, with their versions if the type has versions.
    dropped: Names that were missing in a request with a stale nonce.
    rejected_since: Unix time of the first of the responses that were rejected in succession, if `last_error` is set.
    respond: Whether to answer the next acknowledgement with a complete response, because Envoy may be waiting for one.
    """

    __slots__ = (
        "_retained_size",
        "dropped",
        "held_names",
        "in_flight",
        "last_error",
        "nonce_acked",
        "nonce_sent",
        "owed",
        "owes_all",
        "rejected_since",
        "requested",
        "respond",
        "retained",
        "sent_at",
        "sent_state",
        "type",
        "wildcard",
    )

    def __init__(
        self, xds_type: XdsType, requested: Names, wildcard: bool, retained: Mapping[str, str] = NO_VERSIONS
    ) -> None:
        self.type, self.requested, self.wildcard, self.retained = xds_type, requested, wildcard, retained
        self.nonce_sent = self.nonce_acked = self.last_error = ""
        self.sent_at = self.rejected_since = 0.0
        self.sent_state: TypeState | None = None
        self._retained_size = sum(sys.getsizeof(text) for item in retained.items() for text in item)
        self.owes_all = True
        self.owed = self.held_names = self.dropped = NO_NAMES
        self.respond = self.in_flight = False

    @property
    def type_url(self) -> str:
        return self.type.url

    @property
    def names(self) -> Collection[str]:
        """Return the requested names. They include `*` if the proxy requests everything."""
        return WILDCARD | self.requested.all if self.wildcard else self.requested.all

    @property
    def wildcard_names(self) -> Collection[str]:
        """Return the names of the resources that a wildcard matched. Only the delta variant reports them."""
        return ()

    @property
    def retained_size(self) -> int:
        """Return the size of the retained names and versions in memory, in bytes."""
        return self._retained_size if self.retained else 0

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is requested and nothing is owed.

        A type with aliases is never empty, because it may have resources even if no name is requested.
        """
        return not (self.wildcard or self.requested.all or self.owes_all or self.owed or self.type.has_aliases)

    @property
    def is_owed(self) -> bool:
        """Return whether something must be sent although it did not change."""
        return self.owes_all or bool(self.owed)

    def owe(self, names: Iterable[str]) -> None:
        """Add the given names and the held names to `owed`. Names that are not requested are ignored."""
        owed = self.owed.union(names, self.held_names) if self.owed or self.held_names else frozenset(names)
        self.owed = owed if owed <= self.requested.all else self.requested.all & owed
        self.held_names = NO_NAMES

    def is_behind(self, state: TypeState) -> bool:
        """Return whether there may be something to send."""
        return state is not self.sent_state or self.is_owed


class DeltaSubscription(Subscription):
    """A subscription of the delta variant."""

    __slots__ = ()

    @property
    def wildcard_names(self) -> Collection[str]:
        """Return the names of all resources that the proxy has because of a wildcard."""
        return (
            [name for snapshot in self.sent_state.snapshots for name in snapshot.by_name]
            if self.wildcard and self.sent_state is not None
            else ()
        )

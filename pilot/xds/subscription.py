"""A subscription is what one connection watches of one type, and how far it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from pilot.lib.xds_types import XdsType
from pilot.xds.resource_names import Names
from pilot.xds.snapshot import TypeState

WILDCARD = frozenset({"*"})
NONE: frozenset[str] = frozenset()
NOTHING: Mapping[str, str] = MappingProxyType({})


class Subscription:
    """The watch of one type. `names` are those asked for, next to everything where `wildcard`. `sent` is the state that the proxy has been
    brought to.

    Some resources are owed although they did not change: all of them (`owes_all`), or the names in `owed`; names in `held` will be owed
    when the proxy has taken what made it want them. `retained` are names that a reconnecting client says it still has, with the versions that it
    has them in where the type has any, `dropped` those that a request with a stale nonce did not have. `respond` says that the next
    acknowledgement is answered in full, because Envoy may wait for it.
    """

    __slots__ = (
        "dropped",
        "held",
        "in_flight",
        "last_error",
        "nonce_acked",
        "nonce_sent",
        "owed",
        "owes_all",
        "respond",
        "retained",
        "sent",
        "sent_at",
        "type",
        "wanted",
        "wildcard",
    )

    def __init__(self, of: XdsType, wanted: Names, wildcard: bool, retained: Mapping[str, str] = NOTHING) -> None:
        self.type, self.wanted, self.wildcard, self.retained = of, wanted, wildcard, retained
        self.nonce_sent = self.nonce_acked = self.last_error = ""
        self.sent_at = 0.0
        self.sent: TypeState | None = None
        self.owes_all = True
        self.owed = self.held = self.dropped = NONE
        self.respond = self.in_flight = False

    @property
    def type_url(self) -> str:
        return self.type.url

    @property
    def names(self) -> Collection[str]:
        """Returns the names as the proxy asked for them."""
        return WILDCARD | self.wanted.all if self.wildcard else self.wanted.all

    @property
    def known(self) -> Collection[str]:
        """Returns nothing: what the proxy has of everything is not told by name."""
        return ()

    @property
    def is_empty(self) -> bool:
        """Returns whether nothing is asked for, and the proxy has been told what there was to tell. A type with aliases may have something for who
        asks for nothing."""
        return not (self.wildcard or self.wanted.all or self.owes_all or self.owed or self.type.has_aliases)

    def owe(self, names: Iterable[str]) -> None:
        """Owes these names and those that were held, changed or not, as far as they are asked for."""
        self.owed = self.wanted.all.intersection(self.owed.union(names, self.held))
        self.held = NONE

    def is_behind(self, state: TypeState) -> bool:
        """Returns whether there may be something to send."""
        return state is not self.sent or self.owes_all or bool(self.owed)


class DeltaSubscription(Subscription):
    """A watch of the variant whose responses carry what changed."""

    __slots__ = ()

    @property
    def known(self) -> Collection[str]:
        """Returns the names of all resources that the proxy has, where it asked for everything."""
        return (
            [name for snapshot in self.sent.snapshots for name in snapshot.by_name]
            if self.wildcard and self.sent is not None
            else ()
        )

"""A session is one ADS stream as a state machine, without I/O: it takes requests and changed states, and gives answers.

A session remembers what it was asked and what it has sent, never what it is going to send: `next_response` compares with the
states of now, so that however many changes come while a proxy is slow, it gets the last one, once.
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pilot.lib.text import cut
from pilot.lib.xds_types import CLUSTER, ENDPOINT, XdsType
from pilot.xds import frames
from pilot.xds.fallback_extensions import StandIns
from pilot.xds.frames import Parts, Payload
from pilot.xds.resource_names import NameSets
from pilot.xds.snapshot import SnapshotChange, TypeState
from pilot.xds.subscription import NONE, NOTHING, Subscription

ERROR_LENGTH = 2000
"""Characters that are kept of what a NACK says."""
StateOf = Callable[[str], TypeState | None]


class Acknowledgement(NamedTuple):
    """The part of a request that speaks of the responses before it: an ACK, a NACK with gRPC code and message, a stale nonce, or nothing."""

    acknowledged: bool = False
    stale: bool = False
    rejected: tuple[int, str] | None = None


class Response(NamedTuple):
    """One response: the state that it brings the proxy to, its resources, the names that are gone, and what Envoy then waits for."""

    type_url: str
    state: TypeState
    payloads: tuple[Payload | StandIns, ...]
    removed: tuple[str, ...] = ()
    warms: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Returns about how many bytes the resources have."""
        return sum(payload.size for payload in self.payloads)

    @property
    def resources(self) -> int:
        """Returns the number of resources."""
        return sum(len(payload) for payload in self.payloads)


class Session(abc.ABC):
    """The subscriptions of one stream, in the order in which their types are answered."""

    def __init__(self, name_sets: NameSets) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self._name_sets = name_sets

    @abc.abstractmethod
    def receive(self, request: Any) -> Acknowledgement:
        """Takes a request (a DiscoveryRequest or DeltaDiscoveryRequest), which may make `next_response` owe something; returns what it said of
        the responses before it."""

    @abc.abstractmethod
    def _parts(self, payload: Payload) -> Parts:
        """Returns a payload in this variant's frames."""

    @abc.abstractmethod
    def _everything(self, subscription: Subscription, state: TypeState, changes: Sequence[SnapshotChange]) -> Response:
        """Returns the answer to a wildcard subscription, some of whose resources changed or are owed."""

    def next_response(self, state_of: StateOf) -> Response | None:
        """Returns the first response that the proxy lacks, in warming order, None if it has everything. `sent` follows when it is on its way.

        `state_of` gives the present state of a type, or None where there is none: then the proxy keeps what it has.
        """
        for subscription in self.subscriptions.values():
            state = state_of(subscription.type_url)
            if state is None or not subscription.is_behind(state):
                continue
            answer = self._answer(subscription, state, state_of)
            if answer is not None:
                return answer
            subscription.sent = state
        return None

    def sent(self, answer: Response, nonce: str, now: float) -> None:
        """Notes that an answer is on its way under this nonce, at Unix time `now`."""
        subscription = self.subscriptions[answer.type_url]
        subscription.sent, subscription.sent_at = answer.state, now
        if subscription.type.has_nonces:
            subscription.nonce_sent, subscription.in_flight = nonce, True
        subscription.owes_all, subscription.owed, subscription.retained = False, NONE, NOTHING
        if answer.warms and (endpoints := self.subscriptions.get(ENDPOINT)) is not None:
            endpoints.held |= answer.warms & endpoints.wanted.all

    @property
    def is_due(self) -> bool:
        """Returns whether `release` is to be called soon, if no other request comes that makes it needless.

        Envoy takes changed clusters into use when it gets their endpoints, changed or not. They are held until it has answered the
        clusters: in the same moment it asks for the endpoints of new ones, which makes one response of two.
        """
        endpoints, clusters = self.subscriptions.get(ENDPOINT), self.subscriptions.get(CLUSTER)
        return endpoints is not None and bool(endpoints.held) and not (clusters is not None and clusters.in_flight)

    def release(self) -> None:
        """Owes what was held."""
        if (endpoints := self.subscriptions.get(ENDPOINT)) is not None and endpoints.held:
            endpoints.owe(())

    def slices(self, answer: Response, version: str, nonce: str) -> Iterator[bytes]:
        """Yields the bytes of a response, in slices that take some milliseconds each. Equal for every session of this class."""
        parts = [frames.head(version, answer.type_url)]
        for payload in answer.payloads:
            for number, piece in enumerate(payload.pieces()):
                if number:
                    yield b"".join(parts)
                    parts.clear()
                parts += self._parts(piece)
        for number, names in enumerate(frames.removals(answer.removed)):
            if number:
                yield b"".join(parts)
                parts.clear()
            parts.append(names)
        parts.append(frames.tail(nonce))
        yield b"".join(parts)

    def encode(self, answer: Response, version: str, nonce: str) -> bytes:
        """Returns the bytes of a response."""
        return b"".join(self.slices(answer, version, nonce))

    def owes(self) -> bool:
        """Returns whether something is to be sent that did not change."""
        return any(s.owes_all or s.owed for s in self.subscriptions.values())

    def owe_everything(self) -> None:
        """Owes all resources of all types again."""
        for subscription in self.subscriptions.values():
            subscription.owes_all = True

    def _open(self, subscription: Subscription) -> None:
        known = {**self.subscriptions, subscription.type_url: subscription}
        self.subscriptions = dict(sorted(known.items(), key=lambda item: item[1].type.rank))

    def _reject(self, request: Any) -> Acknowledgement:
        subscription, message = (
            self.subscriptions.get(request.type_url),
            cut(request.error_detail.message, ERROR_LENGTH),
        )
        if subscription is not None:
            subscription.last_error, subscription.in_flight = message, False
        return Acknowledgement(rejected=(request.error_detail.code, message))

    def _answer(self, subscription: Subscription, state: TypeState, state_of: StateOf) -> Response | None:
        changes = state.since(subscription.sent) if subscription.sent not in (None, state) else ()
        if subscription.wildcard:
            if not (changes or subscription.owed or subscription.owes_all):
                return None
            return self._everything(subscription, state, changes)
        if subscription.type.has_aliases:
            return self._reached(subscription, state, changes)
        if subscription.owes_all:
            matched = state.select(subscription.wanted)
            return self._named(subscription, state, [matched.payload], matched.missing, changes)
        return self._changed(subscription, state, changes, state_of)

    def _reached(
        self, subscription: Subscription, state: TypeState, changes: Sequence[SnapshotChange]
    ) -> Response | None:
        """Returns what names lead to, where they lead to resources of other names: all of the state is for this subscription. None if it has all
        of it."""
        if subscription.owes_all:
            payloads = lacking([snapshot.payload for snapshot in state.snapshots], subscription)
            gone = [*state.lead(subscription.wanted.all).missing]
        else:
            payloads, gone = (
                [change.payload for change in changes],
                [name for change in changes for name in change.removed],
            )
            if owed := subscription.owed.difference(*(change.names for change in changes)):
                matched = state.lead(owed)
                changed = {r.name for payload in payloads for r in payload.resources}
                payloads.append(Payload(r for r in matched.payload.resources if r.name not in changed))
                gone += matched.missing
            if not (payloads or gone):
                return None
        return Response(subscription.type_url, state, tuple(payloads), self._removed(subscription.type, gone))

    def _changed(
        self, subscription: Subscription, state: TypeState, changes: Sequence[SnapshotChange], state_of: StateOf
    ) -> Response | None:
        """Returns the changed resources that were asked for with those that are owed, None if there are none."""
        matches = [change.wanted_by(subscription.wanted) for change in changes]
        gone = [name for matched in matches for name in matched.missing]
        if (
            subscription.type.has_stand_in
            and subscription.sent is not None
            and subscription.sent.groups != state.groups
        ):
            clusters = state_of(CLUSTER)  # of another plan, in which most of their clusters are gone too
            gone = [
                name
                for name in gone
                if name in subscription.owed or (clusters is not None and clusters.get(name) is not None)
            ]
        if owed := subscription.owed.difference(*(change.names for change in changes)):
            matches.append(state.pick(owed))
            gone += matches[-1].missing
        payloads = [matched.payload for matched in matches if len(matched.payload)]
        if not (payloads or gone or subscription.owed):
            return None
        answer = self._named(subscription, state, payloads, gone, changes)
        return answer if answer.payloads or answer.removed or subscription.owed else None

    def _named(
        self,
        subscription: Subscription,
        state: TypeState,
        payloads: list[Payload],
        gone: Sequence[str],
        changes: Sequence[SnapshotChange],
    ) -> Response:
        """Returns the answer to a subscription by name: the resources that there are, and the names that there is none for (any more)."""
        of = subscription.type
        stand_ins = (StandIns(of, gone),) if gone and of.has_stand_in else ()
        return Response(of.url, state, (*payloads, *stand_ins), self._removed(of, gone), warms_of(changes))

    def _removed(self, of: XdsType, names: Sequence[str]) -> tuple[str, ...]:
        """Returns the names that a response lists as removed; sorted, unless they are so many that it would take long."""
        if not of.tells_removals:
            return ()
        return tuple(sorted(names) if len(names) <= frames.NAMES_A_PIECE else names)


def lacking(payloads: list[Payload], subscription: Subscription) -> list[Payload]:
    """Returns what a client lacks of some payloads: all but what it retained in the version that it has now."""
    versions = subscription.retained
    if not versions or not subscription.type.has_versions:
        return payloads
    return [
        Payload(
            r for payload in payloads for r in payload.resources if not r.version or versions.get(r.name) != r.version
        )
    ]


def warms_of(changes: Sequence[SnapshotChange]) -> frozenset[str]:
    """Returns the names of the endpoints that Envoy waits for after the changes."""
    return NONE.union(*(change.warms for change in changes))

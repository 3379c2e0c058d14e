"""A stream as a state machine without I/O. It receives requests and changed states, and returns responses.

A session remembers what was requested and what was sent, but has no queue of responses. `next_response` compares the
last state that was sent with the current one. If there are many changes while a proxy is slow, it receives only the
latest state.
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pilot.lib.text import cut
from pilot.lib.xds_types import CLUSTER, ENDPOINT, XdsType
from pilot.xds.session import response_encoding as encoding
from pilot.xds.session.name_sets import NameSets
from pilot.xds.session.response_encoding import Parts, Payload, Placeholders
from pilot.xds.session.snapshot import SnapshotChange, TypeState
from pilot.xds.session.subscription import NO_NAMES, NO_VERSIONS, Subscription

MAX_ERROR_LENGTH = 2000
"""Maximum length of a NACK's message, in characters."""
StateOf = Callable[[str], TypeState | None]


def do_nothing() -> None:
    """Do nothing. For calls that nobody needs, such as those about a stream that is not being served."""


class Acknowledgement(NamedTuple):
    """The part of a request that refers to earlier responses: an ACK, a NACK with code and message, a stale nonce, or
    nothing."""

    acknowledged: bool = False
    stale: bool = False
    rejected: tuple[int, str] | None = None


class Response(NamedTuple):
    """A response: the new state of the type, its resources, removed names, and the endpoints that Envoy waits for."""

    type_url: str
    state: TypeState
    payloads: tuple[Payload | Placeholders, ...]
    removed: tuple[str, ...] = ()
    warms: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Return the approximate total size of the resources, in bytes."""
        return sum(payload.size for payload in self.payloads)

    @property
    def resources(self) -> int:
        """Return the number of resources."""
        return sum(len(payload) for payload in self.payloads)

    def names(self) -> Iterator[str]:
        """Yield the names of the resources, and the removed names."""
        yield from self.removed
        for payload in self.payloads:
            yield from payload.names


class Session(abc.ABC):
    """The subscriptions of one stream, in the order in which their types are sent."""

    def __init__(self, name_sets: NameSets) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self._name_sets = name_sets

    @abc.abstractmethod
    def receive(self, request: Any) -> Acknowledgement:
        """Handle a DiscoveryRequest or DeltaDiscoveryRequest, and return what it says about earlier responses.

        Afterwards, `next_response` may return a response that it did not return before.
        """

    def is_whole(self, response: Response) -> bool:
        """Return whether a proxy drops all resources of a type that are not in a response."""
        return False

    @abc.abstractmethod
    def _parts(self, payload: Payload) -> Parts:
        """Return the encoded parts of a payload for this protocol variant."""

    @abc.abstractmethod
    def _respond_to_wildcard(
        self, subscription: Subscription, state: TypeState, changes: Sequence[SnapshotChange]
    ) -> Response:
        """Return the response to a wildcard subscription. At least one of its resources has changed or is owed."""

    def next_response(self, state_of: StateOf, pause_if_due: Callable[[], None] = do_nothing) -> Response | None:
        """Return the first response that the proxy lacks, in warming order, or None if it is up to date.

        `state_of` returns the current state of a type. If it returns None, the proxy keeps its resources of the type.
        `pause_if_due` is called after parts that are not repeated. If it raises an exception, call this method again.
        Call `mark_sent` when the response is being written.
        """
        for subscription in self.subscriptions.values():
            state = state_of(subscription.type_url)
            if state is None or not subscription.is_behind(state):
                continue
            changes: Sequence[SnapshotChange] = ()
            if subscription.sent_state not in (None, state):
                changes = state.since(subscription.sent_state)
                pause_if_due()
            response = self._respond(subscription, state, changes, state_of, pause_if_due)
            if response is not None:
                return response
            subscription.sent_state = state
        return None

    def mark_sent(self, response: Response, nonce: str, now: float) -> None:
        """Record that a response with this nonce is being written, at Unix time `now`."""
        subscription = self.subscriptions[response.type_url]
        subscription.sent_state, subscription.sent_at = response.state, now
        if subscription.type.has_nonces:
            subscription.nonce_sent, subscription.in_flight = nonce, True
        subscription.owes_all, subscription.owed, subscription.retained = False, NO_NAMES, NO_VERSIONS
        if response.warms and (endpoints := self.subscriptions.get(ENDPOINT)) is not None:
            endpoints.held_names |= response.warms & endpoints.requested.all

    @property
    def should_release(self) -> bool:
        """Return whether `release` should be called soon, unless another request makes it unnecessary.

        Envoy starts to use changed clusters when it receives their endpoints, whether or not the endpoints changed. The
        endpoints are held until Envoy has acknowledged the clusters. It then also requests the endpoints of new
        clusters, so a single response has all of them.
        """
        clusters = self.subscriptions.get(CLUSTER)
        return self.holds_endpoints and not (clusters is not None and clusters.in_flight)

    def release(self) -> None:
        """Include the held endpoints in the next response of their type."""
        if (endpoints := self.subscriptions.get(ENDPOINT)) is not None and endpoints.held_names:
            endpoints.owe(())

    def slices(self, response: Response, version: str, nonce: str) -> Iterator[bytes]:
        """Yield the serialized response in slices. Each slice is computed within a few milliseconds.

        The bytes are the same for all sessions of one class.
        """
        parts = [encoding.head(version, response.type_url)]
        for payload in response.payloads:
            for number, piece in enumerate(payload.pieces()):
                if number:
                    yield b"".join(parts)
                    parts.clear()
                parts += self._parts(piece)
        for number, names in enumerate(encoding.removals(response.removed)):
            if number:
                yield b"".join(parts)
                parts.clear()
            parts.append(names)
        parts.append(encoding.tail(nonce))
        yield b"".join(parts)

    def encode(self, response: Response, version: str, nonce: str) -> bytes:
        """Return the serialized response."""
        return b"".join(self.slices(response, version, nonce))

    def owes(self, type_url: str) -> bool:
        """Return whether resources of a type must be sent although they did not change."""
        subscription = self.subscriptions.get(type_url)
        return subscription is not None and subscription.is_owed

    def owes_anything(self) -> bool:
        """Return whether anything must be sent although it did not change."""
        return any(subscription.is_owed for subscription in self.subscriptions.values())

    @property
    def holds_endpoints(self) -> bool:
        """Return whether endpoints are held until Envoy has acknowledged the clusters that wait for them."""
        endpoints = self.subscriptions.get(ENDPOINT)
        return endpoints is not None and bool(endpoints.held_names)

    def owe_everything(self) -> None:
        """Send all resources of all types again."""
        for subscription in self.subscriptions.values():
            subscription.owes_all = True

    def _add(self, subscription: Subscription) -> None:
        subscriptions = {**self.subscriptions, subscription.type_url: subscription}
        self.subscriptions = dict(sorted(subscriptions.items(), key=lambda item: item[1].type.rank))

    def _reject(self, request: Any) -> Acknowledgement:
        subscription = self.subscriptions.get(request.type_url)
        message = cut(request.error_detail.message, MAX_ERROR_LENGTH)
        if subscription is not None:
            if not subscription.last_error:
                subscription.rejected_since = subscription.sent_at
            subscription.last_error, subscription.in_flight = message, False
        return Acknowledgement(rejected=(request.error_detail.code, message))

    def _respond(
        self,
        subscription: Subscription,
        state: TypeState,
        changes: Sequence[SnapshotChange],
        state_of: StateOf,
        pause_if_due: Callable[[], None],
    ) -> Response | None:
        if subscription.wildcard:
            if not (changes or subscription.owed or subscription.owes_all):
                return None
            return self._respond_to_wildcard(subscription, state, changes)
        if subscription.type.has_aliases:
            return self._respond_to_aliases(subscription, state, changes)
        if subscription.owes_all:
            matches = state.select(subscription.requested)
            return self._respond_to_names(subscription, state, [matches.payload], matches.missing, changes)
        for change in changes:
            change.restrict(subscription.requested)
            pause_if_due()
        return self._respond_to_changes(subscription, state, changes, state_of)

    def _respond_to_aliases(
        self, subscription: Subscription, state: TypeState, changes: Sequence[SnapshotChange]
    ) -> Response | None:
        """Return the response with the resources that the requested names resolve to. The names of these resources may
        differ from the requested names.

        The entire state belongs to this subscription. Return None if the proxy has all of it.
        """
        if subscription.owes_all:
            payloads = missing_payloads([snapshot.payload for snapshot in state.snapshots], subscription)
            missing = [*state.resolve(subscription.requested.all).missing]
        else:
            payloads = [change.payload for change in changes]
            missing = [name for change in changes for name in change.removed]
            if owed := unchanged(subscription.owed, changes):
                matches = state.resolve(owed)
                changed = {r.name for payload in payloads for r in payload.resources}
                payloads.append(Payload(r for r in matches.payload.resources if r.name not in changed))
                missing += matches.missing
            if not (payloads or missing):
                return None
        return Response(subscription.type_url, state, tuple(payloads), self._removed(subscription.type, missing))

    def _respond_to_changes(
        self, subscription: Subscription, state: TypeState, changes: Sequence[SnapshotChange], state_of: StateOf
    ) -> Response | None:
        """Return the response with the requested resources that changed or are owed, or None if there are none."""
        matches = [change.restrict(subscription.requested) for change in changes]
        missing = [name for match in matches for name in match.missing]
        if (
            subscription.type.has_placeholder
            and subscription.sent_state is not None
            and subscription.sent_state.groups != state.groups
        ):
            clusters = state_of(CLUSTER)  # with another plan, most clusters of the missing endpoints are gone too
            missing = [
                name
                for name in missing
                if name in subscription.owed or (clusters is not None and clusters.get(name) is not None)
            ]
        if owed := unchanged(subscription.owed, changes):
            matches.append(state.pick(owed))
            missing += matches[-1].missing
        payloads = [match.payload for match in matches if len(match.payload)]
        if not (payloads or missing or subscription.owed):
            return None
        response = self._respond_to_names(subscription, state, payloads, missing, changes)
        return response if response.payloads or response.removed or subscription.owed else None

    def _respond_to_names(
        self,
        subscription: Subscription,
        state: TypeState,
        payloads: list[Payload],
        missing: Sequence[str],
        changes: Sequence[SnapshotChange],
    ) -> Response:
        """Return the response to a subscription by name. It has the existing resources, and reports names that have
        none."""
        xds_type = subscription.type
        placeholders = (Placeholders(xds_type, missing),) if missing and xds_type.has_placeholder else ()
        removed = self._removed(xds_type, missing)
        return Response(xds_type.url, state, (*payloads, *placeholders), removed, warms_of(changes))

    def _removed(self, xds_type: XdsType, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names that a response lists as removed.

        They are sorted unless there are too many to sort quickly.
        """
        if not xds_type.tells_removals:
            return ()
        return tuple(sorted(names) if len(names) <= encoding.NAMES_PER_PIECE else names)


def missing_payloads(payloads: list[Payload], subscription: Subscription) -> list[Payload]:
    """Return the payloads without the resources whose current version the client has retained."""
    versions = subscription.retained
    if not versions or not subscription.type.has_versions:
        return payloads
    return [
        Payload(
            r for payload in payloads for r in payload.resources if not r.version or versions.get(r.name) != r.version
        )
    ]


def unchanged(names: frozenset[str], changes: Sequence[SnapshotChange]) -> frozenset[str]:
    """Return the names that are not among the changes."""
    return names.difference(*(change.names for change in changes)) if names else names


def warms_of(changes: Sequence[SnapshotChange]) -> frozenset[str]:
    """Return the names of the endpoints that Envoy waits for because of the changes."""
    return NO_NAMES.union(*(change.warms for change in changes))

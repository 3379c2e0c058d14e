"""Sessions of the state-of-the-world variant of xDS: a request names all that is wanted, a response to a wildcard carries all there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pilot.lib.xds_types import CLUSTER, ENDPOINT, XdsType, find_type
from pilot.xds.frames import Parts, Payload
from pilot.xds.session import Acknowledgement, Response, Session, warms_of
from pilot.xds.snapshot import SnapshotChange, TypeState
from pilot.xds.subscription import NONE, Subscription


class SotwSession(Session):
    """A session that takes DiscoveryRequest and answers with DiscoveryResponse."""

    def receive(self, request: Any) -> Acknowledgement:
        if request.HasField("error_detail"):
            return self._reject(request)
        of = find_type(request.type_url)
        if of.is_named and not request.resource_names:
            self.subscriptions.pop(of.url, None)
            return Acknowledgement()
        subscription = self.subscriptions.get(of.url)
        names = frozenset(request.resource_names)
        if subscription is None or not request.response_nonce:  # the first of this stream; a nonce is of an earlier one
            self._open(Subscription(of, self._name_sets.of(names), wildcard=not of.is_named))
            self._warm(of.url)
            return Acknowledgement()
        if request.response_nonce != subscription.nonce_sent:
            subscription.dropped |= (
                subscription.wanted.all - names
            )  # the client lost what it had of these, even if it names them again
            return Acknowledgement(stale=True)
        subscription.last_error, subscription.nonce_acked, subscription.in_flight = "", request.response_nonce, False
        self._rename(subscription, names)
        return Acknowledgement(acknowledged=True)

    def _rename(self, subscription: Subscription, names: frozenset[str]) -> None:
        """Takes the names of an acknowledgement: those that were added are answered."""
        known = subscription.wanted.all - subscription.dropped
        subscription.owes_all, subscription.respond, subscription.dropped = (
            subscription.owes_all or subscription.respond,
            False,
            NONE,
        )
        if names == subscription.wanted.all == known:
            return
        subscription.wanted = self._name_sets.of(names)
        if subscription.wildcard:
            subscription.owes_all = True
        else:
            subscription.owe(names - known)

    def _warm(self, type_url: str) -> None:
        """Has the next request for endpoints answered: clusters that are sent on a first request may be warming, and Envoy then asks for endpoints
        in what looks like an ACK.

        https://github.com/envoyproxy/envoy/issues/13009
        """
        if type_url == CLUSTER and (endpoints := self.subscriptions.get(ENDPOINT)) is not None:
            endpoints.respond = True

    def _parts(self, payload: Payload) -> Parts:
        return payload.sotw

    def _removed(self, of: XdsType, names: Sequence[str]) -> tuple[str, ...]:
        return ()

    def _everything(self, subscription: Subscription, state: TypeState, changes: Sequence[SnapshotChange]) -> Response:
        return Response(
            subscription.type_url,
            state,
            tuple(snapshot.payload for snapshot in state.snapshots),
            warms=warms_of(changes),
        )

"""Sessions of the state-of-the-world variant of xDS.

Each request lists all requested names, and each response to a wildcard request contains all resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pilot.lib.xds_types import CLUSTER, ENDPOINT, XdsType, find_type
from pilot.xds.session.name_sets import read_names
from pilot.xds.session.response_encoding import Parts, Payload
from pilot.xds.session.session import Acknowledgement, Response, Session, warms_of
from pilot.xds.session.snapshot import SnapshotChange, TypeState
from pilot.xds.session.subscription import NO_NAMES, Subscription


class SotwSession(Session):
    """A session of DiscoveryRequests and DiscoveryResponses."""

    def receive(self, request: Any) -> Acknowledgement:
        if request.HasField("error_detail"):
            return self._reject(request)
        xds_type = find_type(request.type_url)
        if xds_type.is_named and not request.resource_names:
            self.subscriptions.pop(xds_type.url, None)
            return Acknowledgement()
        subscription = self.subscriptions.get(xds_type.url)
        names = read_names(request.resource_names)
        if subscription is None or not request.response_nonce:  # a new subscription; a nonce is from an earlier stream
            self._add(Subscription(xds_type, self._name_sets.of(names), wildcard=not xds_type.is_named))
            self._warm(xds_type.url)
            return Acknowledgement()
        if request.response_nonce != subscription.nonce_sent:
            # The client has dropped these resources, even if it requests them again.
            subscription.dropped |= subscription.requested.all - names
            return Acknowledgement(stale=True)
        subscription.last_error, subscription.nonce_acked, subscription.in_flight = "", request.response_nonce, False
        self._update_names(subscription, names)
        return Acknowledgement(acknowledged=True)

    def is_whole(self, response: Response) -> bool:
        subscription = self.subscriptions.get(response.type_url)
        return subscription is not None and subscription.wildcard

    def _update_names(self, subscription: Subscription, names: frozenset[str]) -> None:
        """Replace the requested names with the names in an acknowledgement, and mark the new names as owed."""
        previous = subscription.requested.all - subscription.dropped
        subscription.owes_all = subscription.owes_all or subscription.respond
        subscription.respond, subscription.dropped = False, NO_NAMES
        if names == subscription.requested.all == previous:
            return
        subscription.requested = self._name_sets.of(names)
        if subscription.wildcard:
            subscription.owes_all = True
        else:
            subscription.owe(names - previous)

    def _warm(self, type_url: str) -> None:
        """After a first request for clusters, respond to the next acknowledgement of endpoints.

        Envoy may be warming the clusters. It then requests endpoints in a message that looks like an ACK.
        https://github.com/envoyproxy/envoy/issues/13009
        """
        if type_url == CLUSTER and (endpoints := self.subscriptions.get(ENDPOINT)) is not None:
            endpoints.respond = True

    def _parts(self, payload: Payload) -> Parts:
        return payload.sotw

    def _removed(self, xds_type: XdsType, names: Sequence[str]) -> tuple[str, ...]:
        return ()

    def _respond_to_wildcard(
        self, subscription: Subscription, state: TypeState, changes: Sequence[SnapshotChange]
    ) -> Response:
        return Response(
            subscription.type_url,
            state,
            tuple(snapshot.payload for snapshot in state.snapshots),
            warms=warms_of(changes),
        )

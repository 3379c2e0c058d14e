"""Sessions of the delta variant of xDS, in which requests and responses carry only changes.

Where istiod differs from the protocol's specification, the specification is followed, because Envoy follows it. If a
client subscribes to a name again, the resource is sent again. A stale nonce does not invalidate the subscription
changes in the same request, because Envoy sends each change once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pilot.lib.xds_types import CLUSTER, ENDPOINT, find_type
from pilot.xds.session.name_sets import read_names
from pilot.xds.session.response_encoding import Parts, Payload
from pilot.xds.session.session import Acknowledgement, Response, Session, missing_payloads, unchanged, warms_of
from pilot.xds.session.snapshot import SnapshotChange, TypeState
from pilot.xds.session.subscription import DeltaSubscription, Subscription

STAR = "*"
_STARS = frozenset(STAR)


class DeltaSession(Session):
    """A session of DeltaDiscoveryRequests and DeltaDiscoveryResponses."""

    def receive(self, request: Any) -> Acknowledgement:
        if request.HasField("error_detail"):
            return self._reject(request)
        subscription = self.subscriptions.get(request.type_url)
        if subscription is None:
            self._subscribe(request)
            self._warm(request.type_url)
            return Acknowledgement()
        nonce = request.response_nonce
        acknowledged = bool(nonce) and nonce == subscription.nonce_sent
        if acknowledged:
            subscription.last_error, subscription.nonce_acked, subscription.in_flight = "", nonce, False
        if self._update_names(
            subscription, read_names(request.resource_names_subscribe), read_names(request.resource_names_unsubscribe)
        ):
            self._warm(request.type_url)
        return Acknowledgement(acknowledged, stale=bool(nonce) and not acknowledged)

    def _subscribe(self, request: Any) -> None:
        """Handle the first request of a type.

        The request subscribes to everything if it has the name `*`, or if it has no names and the type is not requested
        by name.
        """
        retained, names = dict(request.initial_resource_versions), read_names(request.resource_names_subscribe)
        xds_type, unsubscribed = find_type(request.type_url), frozenset(request.resource_names_unsubscribe)
        wildcard = (STAR in names and STAR not in unsubscribed) or (not names and not xds_type.is_named)
        requested = names if wildcard or not retained else names.union(retained)
        if excluded := requested & (unsubscribed | _STARS):
            requested -= excluded
        self._add(DeltaSubscription(xds_type, self._name_sets.of(requested), wildcard, retained))

    def _update_names(self, subscription: Subscription, added: frozenset[str], removed: frozenset[str]) -> bool:
        """Change the requested names, and mark the added names as owed. If `*` is added, mark everything as owed.
        Return whether anything is owed."""
        if not added and not removed:
            return False
        if STAR in removed:
            subscription.wildcard = False
        elif STAR in added and not subscription.wildcard:
            subscription.wildcard = subscription.owes_all = True
        subscription.requested = self._name_sets.change(subscription.requested, added, removed | _STARS)
        subscription.owe(added)
        return subscription.is_owed

    def _warm(self, type_url: str) -> None:
        """After a request for clusters, send all endpoints again.

        Envoy may be warming the requested clusters without requesting their endpoints again.
        https://github.com/envoyproxy/envoy/issues/13009
        """
        if type_url == CLUSTER and (endpoints := self.subscriptions.get(ENDPOINT)) is not None:
            endpoints.owes_all = True

    def _parts(self, payload: Payload) -> Parts:
        return payload.delta

    def _respond_to_wildcard(
        self, subscription: Subscription, state: TypeState, changes: Sequence[SnapshotChange]
    ) -> Response:
        removed = {name for change in changes for name in change.removed}
        if subscription.owes_all:
            removed |= {name for name in subscription.retained if state.get(name) is None}
            payloads = missing_payloads([snapshot.payload for snapshot in state.snapshots], subscription)
        else:
            payloads = [change.payload for change in changes]
            if owed := unchanged(subscription.owed, changes):
                matches = state.pick(owed)
                payloads.append(matches.payload)
                removed.update(matches.missing)
        return Response(
            subscription.type_url,
            state,
            tuple(payloads),
            self._removed(subscription.type, tuple(removed)),
            warms_of(changes),
        )

"""Sessions of the delta variant of xDS: requests and responses carry what changed.

Where the reference and the protocol's text differ, the text wins, because Envoy follows it: a name that is subscribed to again is
answered again, and a stale nonce does not make the changes of subscription in the same request void (Envoy sends each once).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pilot.lib.xds_types import CLUSTER, ENDPOINT, find_type
from pilot.xds.frames import Parts, Payload
from pilot.xds.session import Acknowledgement, Response, Session, lacking, warms_of
from pilot.xds.snapshot import SnapshotChange, TypeState
from pilot.xds.subscription import DeltaSubscription, Subscription

STAR = "*"
_STARS = frozenset(STAR)


class DeltaSession(Session):
    """A session that takes DeltaDiscoveryRequest and answers with DeltaDiscoveryResponse."""

    def receive(self, request: Any) -> Acknowledgement:
        if request.HasField("error_detail"):
            return self._reject(request)
        subscription = self.subscriptions.get(request.type_url)
        if subscription is None:
            self._first(request)
            self._warm(request.type_url)
            return Acknowledgement()
        nonce = request.response_nonce
        acknowledged = bool(nonce) and nonce == subscription.nonce_sent
        if acknowledged:
            subscription.last_error, subscription.nonce_acked, subscription.in_flight = "", nonce, False
        if self._resubscribe(
            subscription, tuple(request.resource_names_subscribe), tuple(request.resource_names_unsubscribe)
        ):
            self._warm(request.type_url)
        return Acknowledgement(acknowledged, stale=bool(nonce) and not acknowledged)

    def _first(self, request: Any) -> None:
        """Takes the first request of a type. Everything is wanted where `*` is, or, of a type that is not asked for by name, where no name is."""
        retained, asked = dict(request.initial_resource_versions), frozenset(request.resource_names_subscribe)
        of, dropped = find_type(request.type_url), frozenset(request.resource_names_unsubscribe)
        wildcard = (STAR in asked and STAR not in dropped) or (not asked and not of.is_named)
        wanted = asked if wildcard or not retained else asked.union(retained)
        if unwanted := wanted & (dropped | _STARS):
            wanted -= unwanted
        self._open(DeltaSubscription(of, self._name_sets.of(wanted), wildcard, retained))

    def _resubscribe(self, subscription: Subscription, added: tuple[str, ...], removed: tuple[str, ...]) -> bool:
        """Takes a change of names; returns whether it is to be answered: with the names that were added, or with everything by a `*`."""
        if not added and not removed:
            return False
        if STAR in removed:
            subscription.wildcard = False
        elif STAR in added and not subscription.wildcard:
            subscription.wildcard = subscription.owes_all = True
        subscription.wanted = self._name_sets.change(subscription.wanted, added, (*removed, STAR))
        subscription.owe(added)
        return subscription.owes_all or bool(subscription.owed)

    def _warm(self, type_url: str) -> None:
        """Owes the endpoints of clusters: those that are sent on request may be warming in an Envoy that will not ask for their endpoints again.

        https://github.com/envoyproxy/envoy/issues/13009
        """
        if type_url == CLUSTER and (endpoints := self.subscriptions.get(ENDPOINT)) is not None:
            endpoints.owes_all = True

    def _parts(self, payload: Payload) -> Parts:
        return payload.delta

    def _everything(self, subscription: Subscription, state: TypeState, changes: Sequence[SnapshotChange]) -> Response:
        gone = {name for change in changes for name in change.removed}
        if subscription.owes_all:
            gone |= {name for name in subscription.retained if state.get(name) is None}
            payloads = lacking([snapshot.payload for snapshot in state.snapshots], subscription)
        else:
            payloads = [change.payload for change in changes]
            if owed := subscription.owed.difference(*(change.names for change in changes)):
                matched = state.pick(owed)
                payloads.append(matched.payload)
                gone.update(matched.missing)
        return Response(
            subscription.type_url,
            state,
            tuple(payloads),
            self._removed(subscription.type, tuple(gone)),
            warms_of(changes),
        )

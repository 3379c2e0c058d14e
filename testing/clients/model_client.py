"""A model of Envoy's ADS client as plain data, without I/O or delays."""

from __future__ import annotations

from collections import deque
from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.service.discovery.v3 import discovery_pb2

from pilot.lib.xds_types import BY_SHORT_NAME, short_name
from pilot.xds.session.delta import DeltaSession
from pilot.xds.session.session import Session

TYPES = ("cds", "eds", "lds", "rds")
NAMED = ("eds", "rds")


class ModelClient:
    """Subscribes to all clusters and listeners, to endpoints of clusters named a to f, and to routes that the test
    names.

    `warming` are the clusters received since their last endpoints.
    """

    def __init__(self, session: Session) -> None:
        self.resources: dict[str, dict[str, str]] = {kind: {} for kind in TYPES}
        self.names: dict[str, set[str]] = {kind: set() for kind in NAMED}
        self.warming: set[str] = set()
        self.connect(session)

    def connect(self, session: Session) -> None:
        """Connect to a new stream, and keep the resources of the old one."""
        self.session, self.delta = session, isinstance(session, DeltaSession)
        self.inbox: deque[bytes] = deque()
        self.nonces: dict[str, str] = {}
        self.last_sent: dict[str, str] = {}
        self.subscribed: set[str] = set()
        for kind in TYPES:
            if kind not in NAMED or self.names[kind]:
                self._subscribe(kind, self.names.get(kind, set()), set())

    def name_routes(self, names: set[str]) -> None:
        """Subscribe to these route configurations."""
        self._rename("rds", names)

    def send(self, kind: str, nonce: str, data: bytes) -> None:
        """Queue a response for the client."""
        self.last_sent[kind] = nonce
        self.inbox.append(data)

    def check(self) -> None:
        """Check the session's state of this client once it has read every response."""
        subscriptions = self.session.subscriptions
        assert {short_name(url) for url in subscriptions} == {
            kind for kind in self.subscribed if self.delta or kind not in NAMED or self.names[kind]
        }
        for kind in map(short_name, subscriptions):
            subscription, names = subscriptions[BY_SHORT_NAME[kind]], self.names.get(kind, {"*"})
            assert set(subscription.names) == names, kind
            assert subscription.nonce_sent == subscription.nonce_acked == self.last_sent.get(kind, ""), kind
            assert (subscription.in_flight, subscription.last_error) == (False, ""), kind

    def read(self) -> None:
        """Take the next response: apply it, acknowledge it, and update the subscriptions that depend on it."""
        kind, nonce, received, removed = self._decode(self.inbox.popleft())
        resources = self.resources[kind]
        previous = dict(resources)
        if not self.delta and kind not in NAMED:
            resources.clear()
        resources.update(
            {name: content for name, content in received.items() if kind not in NAMED or name in self.names[kind]}
        )
        for name in removed:
            resources.pop(name, None)
        self.nonces[kind] = nonce
        self._acknowledge(kind)
        if kind == "cds":
            self.warming = {n for n in self.warming if n in resources} | {
                n for n in resources if n[0] <= "f" and resources[n] != previous.get(n)
            }
            self._rename("eds", {name for name in resources if name[0] <= "f"})
        if kind == "eds":
            self.warming -= received.keys()

    def _rename(self, kind: str, names: set[str]) -> None:
        old, self.names[kind] = self.names[kind], names
        for name in old - names:
            self.resources[kind].pop(name, None)
        if old != names:
            self._subscribe(kind, names - old, old - names)

    def _subscribe(self, kind: str, added: set[str], removed: set[str]) -> None:
        if self.delta:
            request = self._request(
                kind, resource_names_subscribe=sorted(added), resource_names_unsubscribe=sorted(removed)
            )
            if kind not in self.subscribed:
                for name in self.resources[kind]:
                    request.initial_resource_versions[name] = ""
        else:
            request = self._request(
                kind, resource_names=sorted(self.names.get(kind, ())), response_nonce=self.nonces.get(kind, "")
            )
            # The request starts a subscription, or ends one.
            if kind not in self.nonces or (kind in NAMED and not self.names[kind]):
                self.last_sent.pop(kind, None)
        self.subscribed.add(kind)
        self.session.receive(request)

    def _acknowledge(self, kind: str) -> None:
        names = {} if self.delta else {"resource_names": sorted(self.names.get(kind, ()))}
        if not self.delta and kind in NAMED and not self.names[kind]:  # an empty list of names ends the subscription
            self.last_sent.pop(kind, None)
        received = self.session.receive(self._request(kind, response_nonce=self.nonces[kind], **names))
        is_open = self.delta or kind not in NAMED or bool(self.names[kind])
        is_last = self.nonces[kind] == self.last_sent.get(kind)
        assert received == (is_open and is_last, is_open and not is_last, None)

    def _request(self, kind: str, **fields: Any) -> Any:
        message_type: Any = discovery_pb2.DeltaDiscoveryRequest if self.delta else discovery_pb2.DiscoveryRequest
        return message_type(type_url=BY_SHORT_NAME[kind], **fields)

    def _decode(self, data: bytes) -> tuple[str, str, dict[str, str], list[str]]:
        if self.delta:
            response: Any = discovery_pb2.DeltaDiscoveryResponse.FromString(data)
            bodies, removed = [r.resource for r in response.resources], list(response.removed_resources)
        else:
            response = discovery_pb2.DiscoveryResponse.FromString(data)
            bodies, removed = response.resources, []
        parsed = [cluster_pb2.Cluster.FromString(body.value) for body in bodies]
        kind = short_name(response.type_url)
        assert len({c.name for c in parsed}) == len(parsed), "duplicate name in a response"
        return kind, response.nonce, {c.name: c.alt_stat_name for c in parsed}, removed

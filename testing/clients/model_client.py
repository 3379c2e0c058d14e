"""A client that behaves as Envoy's ADS client does, as plain data: no I/O, no delays but those that a test makes."""

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
    """Has clusters and listeners by wildcard, endpoints of its clusters whose name starts with a letter up to f, and routes that the test
    names. `warming`: clusters taken since their last endpoints."""

    def __init__(self, session: Session) -> None:
        self.have: dict[str, dict[str, str]] = {kind: {} for kind in TYPES}
        self.names: dict[str, set[str]] = {kind: set() for kind in NAMED}
        self.warming: set[str] = set()
        self.connect(session)

    def connect(self, session: Session) -> None:
        """A new stream; what the old one gave stays."""
        self.session, self.delta = session, isinstance(session, DeltaSession)
        self.inbox: deque[bytes] = deque()
        self.nonces: dict[str, str] = {}
        self.last_sent: dict[str, str] = {}
        self.asked: set[str] = set()
        for kind in TYPES:
            if kind not in NAMED or self.names[kind]:
                self._ask(kind, self.names.get(kind, set()), set())

    def name_routes(self, names: set[str]) -> None:
        self._rename("rds", names)

    def send(self, kind: str, nonce: str, data: bytes) -> None:
        """A response is on its way to the client."""
        self.last_sent[kind] = nonce
        self.inbox.append(data)

    def check(self) -> None:
        """What the session knows of the client, which has read everything, is true."""
        subscriptions = self.session.subscriptions
        assert {short_name(url) for url in subscriptions} == {
            kind for kind in self.asked if self.delta or kind not in NAMED or self.names[kind]
        }
        for kind in map(short_name, subscriptions):
            subscription, names = subscriptions[BY_SHORT_NAME[kind]], self.names.get(kind, {"*"})
            assert set(subscription.names) == names, kind
            assert subscription.nonce_sent == subscription.nonce_acked == self.last_sent.get(kind, ""), kind
            assert (subscription.in_flight, subscription.last_error) == (False, ""), kind

    def read(self) -> None:
        """Take the next response: use it, acknowledge it, and ask for what follows from it."""
        kind, nonce, resources, removed = self._decode(self.inbox.popleft())
        have = self.have[kind]
        before = dict(have)
        if not self.delta and kind not in NAMED:
            have.clear()
        have.update(
            {name: content for name, content in resources.items() if kind not in NAMED or name in self.names[kind]}
        )
        for name in removed:
            have.pop(name, None)
        self.nonces[kind] = nonce
        self._acknowledge(kind)
        if kind == "cds":
            self.warming = {n for n in self.warming if n in have} | {
                n for n in have if n[0] <= "f" and have[n] != before.get(n)
            }
            self._rename("eds", {name for name in have if name[0] <= "f"})
        if kind == "eds":
            self.warming -= resources.keys()

    def _rename(self, kind: str, names: set[str]) -> None:
        old, self.names[kind] = self.names[kind], names
        for name in old - names:
            self.have[kind].pop(name, None)
        if old != names:
            self._ask(kind, names - old, old - names)

    def _ask(self, kind: str, added: set[str], removed: set[str]) -> None:
        if self.delta:
            request = self._request(
                kind, resource_names_subscribe=sorted(added), resource_names_unsubscribe=sorted(removed)
            )
            if kind not in self.asked:
                for name in self.have[kind]:
                    request.initial_resource_versions[name] = ""
        else:
            request = self._request(
                kind, resource_names=sorted(self.names.get(kind, ())), response_nonce=self.nonces.get(kind, "")
            )
            if kind not in self.nonces or (
                kind in NAMED and not self.names[kind]
            ):  # it begins a subscription, or ends one
                self.last_sent.pop(kind, None)
        self.asked.add(kind)
        self.session.receive(request)

    def _acknowledge(self, kind: str) -> None:
        names = {} if self.delta else {"resource_names": sorted(self.names.get(kind, ()))}
        if not self.delta and kind in NAMED and not self.names[kind]:  # it names nothing, which ends the subscription
            self.last_sent.pop(kind, None)
        received = self.session.receive(self._request(kind, response_nonce=self.nonces[kind], **names))
        is_open = self.delta or kind not in NAMED or bool(self.names[kind])
        is_last = self.nonces[kind] == self.last_sent.get(kind)
        assert received == (is_open and is_last, is_open and not is_last, None)

    def _request(self, kind: str, **fields: Any) -> Any:
        make: Any = discovery_pb2.DeltaDiscoveryRequest if self.delta else discovery_pb2.DiscoveryRequest
        return make(type_url=BY_SHORT_NAME[kind], **fields)

    def _decode(self, data: bytes) -> tuple[str, str, dict[str, str], list[str]]:
        if self.delta:
            response: Any = discovery_pb2.DeltaDiscoveryResponse.FromString(data)
            bodies, removed = [r.resource for r in response.resources], list(response.removed_resources)
        else:
            response = discovery_pb2.DiscoveryResponse.FromString(data)
            bodies, removed = response.resources, []
        parsed = [cluster_pb2.Cluster.FromString(body.value) for body in bodies]
        kind = short_name(response.type_url)
        assert len({c.name for c in parsed}) == len(parsed), "a name twice in one response"
        return kind, response.nonce, {c.name: c.alt_stat_name for c in parsed}, removed

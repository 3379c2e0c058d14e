"""Random edits: a ztunnel ends with the same state as a new client and as a fresh mesh."""

from __future__ import annotations

import random

import pytest

from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.xds_types import ADDRESS, AUTHORIZATION
from pilot.mesh.ambient.addresses import resolve_name
from pilot.xds.push.connection import Connection
from pilot.xds.push.discovery import Discovery
from pilot.xds.session.delta import DeltaSession
from testing.clients.ztunnel import AMBIENT, ZtunnelClient
from testing.edits.ztunnel_edits import NAMES, SLOTS, rows_at
from testing.mesh.world import World, proxy

EDITS = 300
MULTI_NETWORK = {"AMBIENT_ENABLE_MULTI_NETWORK": "true"}


class ZtunnelPeer:
    """A ztunnel on a node, with its stream."""

    def __init__(self, simulation: Simulation, number: int, on_demand: bool) -> None:
        self.simulation, self.number = simulation, number
        self.client = ZtunnelClient(self._session(), on_demand)

    def _session(self) -> DeltaSession:
        discovery, session = self.simulation.discovery, DeltaSession(self.simulation.discovery.name_sets)
        ip, node = f"10.9.0.{self.number}", f"n{self.number % 2 + 1}"
        ztunnel = proxy("ztunnel", f"z{self.number}", "istio-system", ip, NODE_NAME=node if self.number % 3 else "")
        self.connection: Connection = discovery.connect(
            f"ztunnel~{ip}~z{self.number}.istio-system~x", ztunnel, "", session
        )
        return session

    def send(self) -> bool:
        answer = self.simulation.discovery.next_response(self.connection)
        if answer is None:
            return False
        self.simulation.response_count += 1
        nonce = f"n{self.simulation.response_count}"
        self.client.inbox.append(self.connection.session.encode(answer, "v", nonce))
        self.connection.session.mark_sent(answer, nonce, 0.0)
        return True

    def read(self) -> None:
        if self.client.inbox:
            self.client.read()

    def settle(self) -> None:
        while self.send() or self.client.inbox:
            self.read()

    def reconnect(self) -> None:
        self.close()
        self.client.connect(self._session())

    def close(self) -> None:
        self.simulation.discovery.remove(self.connection)


class Simulation:
    """A mesh, its ztunnels, and a source of randomness."""

    def __init__(self, rng: random.Random, environ: dict[str, str]) -> None:
        self.rng, self.environ, self.response_count = rng, environ, 0
        self.world = World(environ=environ)
        self.discovery = Discovery(self.world.mesh, Metrics(), proxy_plan, linger=0.0)
        self.slots = dict.fromkeys(SLOTS, -1)
        self.peers = [
            ZtunnelPeer(self, number, on_demand) for number, on_demand in enumerate((False, False, True, True, True))
        ]

    def step(self) -> None:
        peer = self.rng.choice(self.peers)
        moves = (self.edit, peer.send, peer.read, self.request, peer.reconnect, self.sweep)
        self.rng.choices(moves, (6, 8, 8, 2, 0.5, 0.2))[0]()

    def edit(self) -> None:
        rows = {}
        for slot in self.rng.sample(list(SLOTS), self.rng.choice((1, 1, 1, 2, 5))):
            self.slots[slot] = self.rng.randrange(-1, len(SLOTS[slot]))
            rows |= rows_at(slot, self.slots[slot])
        mesh = self.world.mesh
        edits = [(mesh.tables[table], key, row) for (table, key), row in rows.items()]
        self.discovery.wake(mesh.commit(edits), {"config": 1})

    def request(self) -> None:
        self.rng.choice([peer for peer in self.peers if peer.client.on_demand]).client.request(self.rng.choice(NAMES))

    def sweep(self) -> None:
        self.discovery.sweep()

    def check(self) -> None:
        for peer in self.peers:
            peer.settle()
            fresh = ZtunnelPeer(self, peer.number, peer.client.on_demand)
            for name in peer.connection.session.subscriptions[ADDRESS].requested.all:
                fresh.client.request(name)
            fresh.settle()
            assert peer.client.resources == fresh.client.resources
            assert peer.client.versions == fresh.client.versions
            assert peer.client.resolved_names() == {
                name for name in peer.client.names if resolve_name(self.world.mesh, name)
            }
            assert peer.client.names <= peer.client.answered
            fresh.close()
        assert self.world.failures == []
        assert {url: self.peers[0].client.resources[url] for url in (ADDRESS, AUTHORIZATION)} == self.fresh_state()

    def fresh_state(self) -> dict[str, dict[str, bytes]]:
        """Return the resources of a ztunnel in a mesh created with the current objects."""
        other = Simulation.__new__(Simulation)
        other.rng, other.environ, other.response_count = self.rng, self.environ, 0
        other.world = World(environ=self.environ)
        other.discovery = Discovery(other.world.mesh, Metrics(), proxy_plan, linger=0.0)
        for slot, variant in self.slots.items():
            if variant >= 0:
                other.world.set(rows_at(slot, variant))
        peer = ZtunnelPeer(other, 0, on_demand=False)
        peer.settle()
        return peer.client.resources


@pytest.mark.parametrize(
    "more",
    [{}, MULTI_NETWORK, {"PILOT_AUTO_ALLOW_WAYPOINT_POLICY": "true"}],
    ids=["single-network", "multi-network", "auto-allow-waypoint"],
)
def test_long_lived_ztunnel_equals_a_new_one(more: dict[str, str], seed: int) -> None:
    simulation = Simulation(random.Random(seed), {**AMBIENT, **more})
    edits = 0
    while edits < EDITS:
        before = dict(simulation.slots)
        simulation.step()
        edits += simulation.slots != before
        if simulation.rng.random() < 0.02:
            simulation.check()
    simulation.check()


def test_reconnect_sends_only_changes(seed: int) -> None:
    simulation = Simulation(random.Random(seed), AMBIENT)
    for _ in range(60):
        simulation.edit()
    for peer in simulation.peers:
        if peer.client.on_demand:
            peer.client.request("a/web.a.svc.cluster.local")
        peer.settle()
        received_before = peer.client.received
        peer.reconnect()
        peer.settle()
        policy_count = len(peer.client.resources[AUTHORIZATION])  # policies have no versions, as in Istio
        assert peer.client.received - received_before == policy_count

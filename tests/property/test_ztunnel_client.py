"""Whatever changes in whatever order, a ztunnel has in the end what one has that connects now, and what the mesh would have from scratch."""

from __future__ import annotations

import random

import pytest

from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.metrics import Metrics
from pilot.lib.xds_types import ADDRESS, AUTHORIZATION
from pilot.mesh.ambient.addresses import resolve_name
from pilot.xds.push.connection import Connection
from pilot.xds.push.discovery import Discovery
from pilot.xds.session.delta import DeltaSession
from testing.clients.ztunnel import AMBIENT, ZtunnelClient
from testing.edits.ztunnel_edits import NAMES, SLOTS, rows_at
from testing.mesh.world import World, proxy

EDITS = 300
CROSSING = {"AMBIENT_ENABLE_MULTI_NETWORK": "true"}


class Player:
    """A ztunnel of a node, and its stream."""

    def __init__(self, game: Game, number: int, on_demand: bool) -> None:
        self.game, self.number = game, number
        self.client = ZtunnelClient(self._session(), on_demand)

    def _session(self) -> DeltaSession:
        discovery, session = self.game.discovery, DeltaSession(self.game.discovery.name_sets)
        ip, node = f"10.9.0.{self.number}", f"n{self.number % 2 + 1}"
        told = proxy("ztunnel", f"z{self.number}", "istio-system", ip, NODE_NAME=node if self.number % 3 else "")
        self.connection: Connection = discovery.connect(
            f"ztunnel~{ip}~z{self.number}.istio-system~x", told, "", session
        )
        return session

    def send(self) -> bool:
        answer = self.game.discovery.next_response(self.connection)
        if answer is None:
            return False
        self.game.sent += 1
        nonce = f"n{self.game.sent}"
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
        self.game.discovery.remove(self.connection)


class Game:
    """A mesh, its ztunnels, and chance."""

    def __init__(self, chance: random.Random, environ: dict[str, str]) -> None:
        self.chance, self.environ, self.sent = chance, environ, 0
        self.world = World(environ=environ)
        self.discovery = Discovery(self.world.mesh, Metrics(), proxy_plan, linger=0.0)
        self.slots = dict.fromkeys(SLOTS, -1)
        self.players = [
            Player(self, number, on_demand) for number, on_demand in enumerate((False, False, True, True, True))
        ]

    def step(self) -> None:
        player = self.chance.choice(self.players)
        moves = (self.edit, player.send, player.read, self.ask, player.reconnect, self.sweep)
        self.chance.choices(moves, (6, 8, 8, 2, 0.5, 0.2))[0]()

    def edit(self) -> None:
        rows = {}
        for slot in self.chance.sample(list(SLOTS), self.chance.choice((1, 1, 1, 2, 5))):
            self.slots[slot] = self.chance.randrange(-1, len(SLOTS[slot]))
            rows |= rows_at(slot, self.slots[slot])
        mesh = self.world.mesh
        edits = [(mesh.tables[table], key, row) for (table, key), row in rows.items()]
        self.discovery.wake(mesh.commit(edits), {"config": 1})

    def ask(self) -> None:
        self.chance.choice([player for player in self.players if player.client.on_demand]).client.request(
            self.chance.choice(NAMES)
        )

    def sweep(self) -> None:
        self.discovery.sweep()

    def check(self) -> None:
        for player in self.players:
            player.settle()
            fresh = Player(self, player.number, player.client.on_demand)
            for name in player.connection.session.subscriptions[ADDRESS].requested.all:
                fresh.client.request(name)
            fresh.settle()
            assert player.client.resources == fresh.client.resources
            assert player.client.versions == fresh.client.versions
            assert player.client.resolved_names() == {
                name for name in player.client.names if resolve_name(self.world.mesh, name)
            }
            assert player.client.names <= player.client.answered
            fresh.close()
        assert self.world.failures == []
        assert {url: self.players[0].client.resources[url] for url in (ADDRESS, AUTHORIZATION)} == self.from_scratch()

    def from_scratch(self) -> dict[str, dict[str, bytes]]:
        """What a ztunnel gets of a mesh that has these objects from the start."""
        other = Game.__new__(Game)
        other.chance, other.environ, other.sent = self.chance, self.environ, 0
        other.world = World(environ=self.environ)
        other.discovery = Discovery(other.world.mesh, Metrics(), proxy_plan, linger=0.0)
        for slot, variant in self.slots.items():
            if variant >= 0:
                other.world.set(rows_at(slot, variant))
        player = Player(other, 0, on_demand=False)
        player.settle()
        return player.client.resources


@pytest.mark.parametrize(
    "more",
    [{}, CROSSING, {"PILOT_AUTO_ALLOW_WAYPOINT_POLICY": "true"}],
    ids=["one network", "networks", "waypoints let in"],
)
def test_in_the_end_a_ztunnel_has_what_one_gets_that_connects_now(more: dict[str, str], seed: int) -> None:
    game = Game(random.Random(seed), {**AMBIENT, **more})
    edits = 0
    while edits < EDITS:
        before = dict(game.slots)
        game.step()
        edits += game.slots != before
        if game.chance.random() < 0.02:
            game.check()
    game.check()


def test_who_comes_back_gets_what_has_changed_alone(seed: int) -> None:
    game = Game(random.Random(seed), AMBIENT)
    for _ in range(60):
        game.edit()
    for player in game.players:
        if player.client.on_demand:
            player.client.request("a/web.a.svc.cluster.local")
        player.settle()
        received = player.client.received
        player.reconnect()
        player.settle()
        of_policies = len(player.client.resources[AUTHORIZATION])  # these have no versions, as in Istio
        assert player.client.received - received == of_policies

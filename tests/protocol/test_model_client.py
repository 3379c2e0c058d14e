"""Whatever changes in whatever order, and however slow a proxy is: in the end it has what it should, and nothing stays warming."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pilot.lib.xds_types import short_name
from pilot.xds.session.session import Session, StateOf
from pilot.xds.session.snapshot import Snapshot, TypeState
from testing.clients.model_client import TYPES, ModelClient
from testing.clients.scripted_stream import World, delta, sotw

NAMES = {"cds": "abcxyz", "eds": "abc", "lds": "lmn", "rds": "rstu"}
HIDDEN = {"cds": {"b", "y"}, "eds": {"b"}, "lds": {"n"}, "rds": {"u"}}
"""What proxies of the other plan do not get."""


class Player:
    """One client and its session, at a view of its own."""

    def __init__(self, make: Callable[[], Session]) -> None:
        self.make, self.is_other, self.sent = make, False, 0
        self.session = make()
        self.client = ModelClient(self.session)

    def send(self, state_of: StateOf) -> bool:
        answer = self.session.next_response(state_of)
        if answer is None:
            return False
        self.sent += 1
        nonce = f"n{self.sent}"
        self.client.send(short_name(answer.type_url), nonce, self.session.encode(answer, "v", nonce))
        self.session.mark_sent(answer, nonce, 0.0)
        return True

    def reconnect(self) -> None:
        self.session = self.make()
        self.client.connect(self.session)


class Game:
    """Some clients, one world with two plans of it, and chance."""

    def __init__(self, make: Callable[[], Session], chance: random.Random, players: int) -> None:
        self.make, self.chance, self.world = make, chance, World()
        self.others: dict[str, tuple[TypeState, TypeState]] = {}
        for kind in TYPES:
            self.world.change(kind, [])
        self.players = [Player(make) for _ in range(players)]

    def step(self) -> None:
        player = self.chance.choice(self.players)
        moves = (self.edit, self.send, self.read, self.route, self.release, self.reconnect, self.replan)
        self.chance.choices(moves, (6, 8, 8, 2, 2, 0.3, 0.5))[0](player)

    def edit(self, _: Player) -> None:
        kind = self.chance.choice(TYPES)
        group = self.chance.choice(("", "", "g:")) if kind == "cds" else ""
        names = [group + name for name in NAMES[kind] if self.chance.random() < 0.3]
        self.world.change(
            kind,
            [f"{name}={self.chance.randint(1, 3)}" if self.chance.random() < 0.7 else f"{name}-" for name in names],
        )

    def state_of(self, player: Player) -> StateOf:
        return self.other_view if player.is_other else self.world.state

    def other_view(self, type_url: str) -> TypeState:
        """The present view of the other plan, made once for all of its proxies."""
        view = self.world.state(type_url)
        assert view is not None
        known = self.others.get(type_url)
        if known is None or known[0] is not view:
            shown = (r for name, r in view.union().items() if name not in HIDDEN[short_name(type_url)])
            known = self.others[type_url] = view, TypeState(("other", type_url), (Snapshot(shown),))
        return known[1]

    def send(self, player: Player) -> bool:
        return player.send(self.state_of(player))

    def read(self, player: Player) -> None:
        if player.client.inbox:
            player.client.read()

    def route(self, player: Player) -> None:
        player.client.name_routes({name for name in NAMES["rds"] if self.chance.random() < 0.5})

    def release(self, player: Player) -> None:
        player.session.release()

    def reconnect(self, player: Player) -> None:
        player.reconnect()

    def replan(self, player: Player) -> None:
        player.is_other = not player.is_other

    def settle(self, player: Player) -> None:
        """Let everything arrive."""
        for _ in range(100):
            while self.send(player) or player.client.inbox:
                self.read(player)
            if not any(s.held_names for s in player.session.subscriptions.values()):
                return
            player.session.release()
        raise AssertionError("it never ends")

    def expected(self, player: Player, kind: str) -> dict[str, str]:
        hidden, names = HIDDEN[kind] if player.is_other else set(), player.client.names.get(kind)
        content = {n: c for n, c in self.merged(kind).items() if n not in hidden and (names is None or n in names)}
        return dict.fromkeys(names or (), "") | content if kind == "eds" else content

    def merged(self, kind: str) -> dict[str, str]:
        """The first group of a name has it."""
        out: dict[str, str] = {}
        for name, content in sorted(
            self.world._contents.get(kind, {}).items(), key=lambda item: item[0].rpartition(":")[0]
        ):
            out.setdefault(name.rpartition(":")[2], content)
        return out


@pytest.mark.parametrize("make", [sotw, delta])
def test_in_the_end_each_proxy_has_what_it_should_and_the_server_knows_it(
    make: Callable[[], Session], seed: int
) -> None:
    for number in range(200):
        game = Game(make, random.Random(seed + number), players=3)
        for _ in range(150):
            game.step()
        for player in game.players:
            game.settle(player)
            for kind in TYPES:
                have, expected = player.client.have[kind], game.expected(player, kind)
                if (
                    make is sotw and kind == "rds"
                ):  # a state-of-the-world response cannot say that a named resource is gone
                    have = {name: content for name, content in have.items() if name in expected}
                assert have == expected, (kind, seed + number)
            assert not player.client.warming, seed + number
            assert not game.send(player), seed + number
            player.client.check()

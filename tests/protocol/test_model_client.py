"""Whatever changes in whatever order, and however slow a proxy is: in the end it has what it should, and nothing stays warming."""
from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pilot.serve.session import Session
from tests.support.model_client import NAMED, TYPES, ModelClient
from tests.support.streams import World, delta, sotw

NAMES = {"cds": "abcxyz", "eds": "abc", "lds": "lmn", "rds": "rstu"}


class Game:
    """One client, one world, and chance."""

    def __init__(self, make: Callable[[], Session], chance: random.Random) -> None:
        self.make, self.chance, self.world = make, chance, World()
        for kind in TYPES:
            self.world.change(kind, [])
        self.session = make()
        self.client = ModelClient(self.session)
        self.sent = 0

    def step(self) -> None:
        move = self.chance.choices((self.edit, self.send, self.read, self.route, self.release, self.reconnect), (6, 8, 8, 2, 2, 0.3))[0]
        move()

    def edit(self) -> None:
        kind = self.chance.choice(TYPES)
        group = self.chance.choice(("", "", "g:")) if kind == "cds" else ""
        names = [group + name for name in NAMES[kind] if self.chance.random() < 0.3]
        self.world.change(kind, [f"{name}={self.chance.randint(1, 3)}" if self.chance.random() < 0.7 else f"{name}-" for name in names])

    def send(self) -> bool:
        answer = self.session.next_answer(self.world.view)
        if answer is None:
            return False
        self.sent += 1
        nonce = f"n{self.sent}"
        self.client.inbox.append(self.session.encode(answer, "v", nonce))
        self.session.sent(answer, nonce, 0.0)
        return True

    def read(self) -> None:
        if self.client.inbox:
            self.client.read()

    def route(self) -> None:
        self.client.name_routes({name for name in NAMES["rds"] if self.chance.random() < 0.5})

    def release(self) -> None:
        self.session.release()

    def reconnect(self) -> None:
        self.session = self.make()
        self.client.connect(self.session)

    def settle(self) -> None:
        """Let everything arrive."""
        for _ in range(100):
            while self.send() or self.client.inbox:
                self.read()
            if not any(s.held for s in self.session.subscriptions.values()):
                return
            self.session.release()
        raise AssertionError("it never ends")

    def expected(self, kind: str) -> dict[str, str]:
        content = {name: resource for name, resource in self.merged(kind).items() if kind not in NAMED or name in self.client.names[kind]}
        if kind == "eds":
            return dict.fromkeys(self.client.names[kind], "") | content
        return content

    def merged(self, kind: str) -> dict[str, str]:
        """The first group of a name has it."""
        out: dict[str, str] = {}
        for name, content in sorted(self.world._contents.get(kind, {}).items(), key=lambda item: item[0].rpartition(":")[0]):
            out.setdefault(name.rpartition(":")[2], content)
        return out


@pytest.mark.parametrize("make", [sotw, delta])
def test_in_the_end_a_proxy_has_what_it_should(make: Callable[[], Session], seed: int) -> None:
    for number in range(400):
        game = Game(make, random.Random(seed + number))
        for _ in range(60):
            game.step()
        game.settle()
        for kind in TYPES:
            have, expected = game.client.have[kind], game.expected(kind)
            if make is sotw and kind == "rds":  # a state-of-the-world response cannot say that a named resource is gone
                have = {name: content for name, content in have.items() if name in expected}
            assert have == expected, (kind, seed + number)
        assert not game.client.warming, seed + number
        assert not game.send(), seed + number

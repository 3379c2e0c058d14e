"""Random changes and slow proxies: each model client converges to the expected resources, without warming ones left over."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pilot.lib.xds_types import short_name
from pilot.xds.session.session import Session, StateOf
from pilot.xds.session.snapshot import Snapshot, TypeState
from testing.clients.model_client import TYPES, ModelClient
from testing.clients.scripted_stream import ScriptedResources, delta, sotw

NAMES = {"cds": "abcxyz", "eds": "abc", "lds": "lmn", "rds": "rstu"}
HIDDEN = {"cds": {"b", "y"}, "eds": {"b"}, "lds": {"n"}, "rds": {"u"}}
"""Resources missing from the other plan."""


class ModelProxy:
    """A client and its session, with its own plan."""

    def __init__(self, make: Callable[[], Session]) -> None:
        self.make, self.is_other, self.responses = make, False, 0
        self.session = make()
        self.client = ModelClient(self.session)

    def send(self, state_of: StateOf) -> bool:
        response = self.session.next_response(state_of)
        if response is None:
            return False
        self.responses += 1
        nonce = f"n{self.responses}"
        self.client.send(short_name(response.type_url), nonce, self.session.encode(response, "v", nonce))
        self.session.mark_sent(response, nonce, 0.0)
        return True

    def reconnect(self) -> None:
        self.session = self.make()
        self.client.connect(self.session)


class Simulation:
    """Clients in a world with two plans, which change at random."""

    def __init__(self, make: Callable[[], Session], rng: random.Random, proxies: int) -> None:
        self.make, self.rng, self.world = make, rng, ScriptedResources()
        self.others: dict[str, tuple[TypeState, TypeState]] = {}
        for kind in TYPES:
            self.world.change(kind, [])
        self.proxies = [ModelProxy(make) for _ in range(proxies)]

    def step(self) -> None:
        proxy = self.rng.choice(self.proxies)
        moves = (self.edit, self.send, self.read, self.route, self.release, self.reconnect, self.replan)
        self.rng.choices(moves, (6, 8, 8, 2, 2, 0.3, 0.5))[0](proxy)

    def edit(self, _: ModelProxy) -> None:
        kind = self.rng.choice(TYPES)
        group = self.rng.choice(("", "", "g:")) if kind == "cds" else ""
        names = [group + name for name in NAMES[kind] if self.rng.random() < 0.3]
        self.world.change(
            kind,
            [f"{name}={self.rng.randint(1, 3)}" if self.rng.random() < 0.7 else f"{name}-" for name in names],
        )

    def state_of(self, proxy: ModelProxy) -> StateOf:
        return self.other_state if proxy.is_other else self.world.state

    def other_state(self, type_url: str) -> TypeState:
        """Return the current state of the other plan, shared by its proxies."""
        state = self.world.state(type_url)
        assert state is not None
        cached = self.others.get(type_url)
        if cached is None or cached[0] is not state:
            visible = (r for name, r in state.union().items() if name not in HIDDEN[short_name(type_url)])
            cached = self.others[type_url] = state, TypeState(("other", type_url), (Snapshot(visible),))
        return cached[1]

    def send(self, proxy: ModelProxy) -> bool:
        return proxy.send(self.state_of(proxy))

    def read(self, proxy: ModelProxy) -> None:
        if proxy.client.inbox:
            proxy.client.read()

    def route(self, proxy: ModelProxy) -> None:
        proxy.client.name_routes({name for name in NAMES["rds"] if self.rng.random() < 0.5})

    def release(self, proxy: ModelProxy) -> None:
        proxy.session.release()

    def reconnect(self, proxy: ModelProxy) -> None:
        proxy.reconnect()

    def replan(self, proxy: ModelProxy) -> None:
        proxy.is_other = not proxy.is_other

    def settle(self, proxy: ModelProxy) -> None:
        """Deliver all pending responses."""
        for _ in range(100):
            while self.send(proxy) or proxy.client.inbox:
                self.read(proxy)
            if not any(s.held_names for s in proxy.session.subscriptions.values()):
                return
            proxy.session.release()
        raise AssertionError("the stream never settles")

    def expected(self, proxy: ModelProxy, kind: str) -> dict[str, str]:
        hidden, names = HIDDEN[kind] if proxy.is_other else set(), proxy.client.names.get(kind)
        content = {n: c for n, c in self.merged(kind).items() if n not in hidden and (names is None or n in names)}
        return dict.fromkeys(names or (), "") | content if kind == "eds" else content

    def merged(self, kind: str) -> dict[str, str]:
        """Return the contents by name. The first group wins."""
        contents: dict[str, str] = {}
        for name, content in sorted(
            self.world._contents.get(kind, {}).items(), key=lambda item: item[0].rpartition(":")[0]
        ):
            contents.setdefault(name.rpartition(":")[2], content)
        return contents


@pytest.mark.parametrize("make", [sotw, delta])
def test_proxies_converge(make: Callable[[], Session], seed: int) -> None:
    for number in range(200):
        simulation = Simulation(make, random.Random(seed + number), proxies=3)
        for _ in range(150):
            simulation.step()
        for proxy in simulation.proxies:
            simulation.settle(proxy)
            for kind in TYPES:
                actual, expected = proxy.client.resources[kind], simulation.expected(proxy, kind)
                if make is sotw and kind == "rds":  # a state-of-the-world response cannot remove a named resource
                    actual = {name: content for name, content in actual.items() if name in expected}
                assert actual == expected, (kind, seed + number)
            assert not proxy.client.warming, seed + number
            assert not simulation.send(proxy), seed + number
            proxy.client.check()

"""A search for the inputs that cost the most for each byte."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LARGEST_INPUT = 1_000_000
"""Maximum number of bytes in an input."""
Genes = dict[str, int]
"""The choices that an input is made from: counts, lengths, and positions in lists of alternatives, by name."""


class Choices:
    """Makes the choices of one input. Those that `genes` do not contain are random.

    Counts are distributed logarithmically, so that single large ones and products of small ones occur.
    """

    def __init__(self, rng: random.Random, genes: Mapping[str, int]) -> None:
        self._rng, self._given = rng, genes
        self.genes: Genes = {}
        self.counts: set[str] = set()

    def count(self, name: str, largest: int) -> int:
        """Return a number from 0 to `largest`."""
        self.counts.add(name)
        value = self._given.get(name)
        if value is None:
            value = int((largest + 2) ** self._rng.random()) - 1
        self.genes[name] = max(0, min(value, largest))
        return self.genes[name]

    def pick(self, name: str, alternatives: Sequence[Any]) -> Any:
        """Return one of the alternatives."""
        value = self._given.get(name)
        self.genes[name] = (self._rng.randrange(len(alternatives)) if value is None else value) % len(alternatives)
        return alternatives[self.genes[name]]

    def text(self, name: str, pieces: Sequence[str], largest: int) -> str:
        """Return up to three of the pieces in turn, repeated up to a number of bytes."""
        unit = "".join(self.pick(f"{name} {number}", ("", *pieces)) for number in range(3)) or pieces[0]
        return unit * (self.count(f"{name} bytes", largest) // len(unit))


def size(value: Any, sizes: dict[int, int] | None = None) -> int:
    """Return about the size of a value in JSON. Parts that occur repeatedly are measured once."""
    if isinstance(declared := getattr(value, "size", None), int):
        return declared  # of callers
    sizes = {} if sizes is None else sizes
    if isinstance(value, str):
        return len(json.dumps(value))
    if not isinstance(value, dict | list | tuple):
        return 4
    if (result := sizes.get(id(value))) is None:
        keys = sum(len(key) + 4 for key in value) if isinstance(value, dict) else 0
        items = value.values() if isinstance(value, dict) else value
        result = sizes[id(value)] = keys + sum(size(item, sizes) + 2 for item in items)
    return result


def make(rng: random.Random, genes: Mapping[str, int], build: Callable[[Choices], Any]) -> tuple[Any, Genes]:
    """Return an input of at most LARGEST_INPUT bytes and its genes. The largest count is halved while it is larger."""
    while True:
        choices = Choices(rng, genes)
        result = build(choices)
        if size(result) <= LARGEST_INPUT:
            return result, choices.genes
        largest = max(choices.counts, key=lambda name: choices.genes[name])
        genes = {**choices.genes, largest: choices.genes[largest] // 2}


class HillClimber:
    """Proposes genes. Three quarters of the proposals are changes of the best ones, and the others are random."""

    KEPT = 5

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.best: list[tuple[float, Genes]] = []

    def propose(self) -> Genes:
        """Return the genes of the next input. Absent ones are random."""
        if not self.best or self._rng.random() < 0.25:
            return {}
        genes = dict(self._rng.choice(self.best)[1])
        for name in self._rng.sample(sorted(genes), min(len(genes), self._rng.randint(1, 2))):
            match self._rng.randrange(4):
                case 0:
                    del genes[name]
                case 1:
                    genes[name] = genes[name] * 2 + 1
                case 2:
                    genes[name] //= 2
                case _:
                    genes[name] += 1
        return genes

    def learn(self, genes: Genes, score: float) -> None:
        """Add the score of an input. Equal genes keep their highest score."""
        others = [(s, g) for s, g in self.best if g != genes]
        score = max([score, *(s for s, g in self.best if g == genes)])
        self.best = sorted([*others, (score, genes)], key=lambda pair: -pair[0])[: self.KEPT]

"""A search for the shapes of input that cost the most once they are large.

A shape is a builder and its genes: the choices that an input is made from. Inputs of 2 kB are enough to compare most
shapes. The best ones are built again at 8 and 32 kB, which shows how their cost grows, and thereby what a large input
would cost.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

LARGEST_INPUT = 1_000_000
"""Maximum number of bytes in an input."""
SMALL, MEDIUM, LARGE = 2_000, 8_000, 32_000
"""Sizes in bytes at which inputs are built."""
MEMORY_PER_SECOND = 50 << 20
"""Number of bytes that are as bad as a second of CPU time."""
STEP_SECONDS = 0.02
"""CPU seconds of the event loop without interruption that are as bad as a second of CPU time."""
RANKING = 1
"""Maximum ratio of the CPU time for large inputs to that for small ones."""
Genes = dict[str, int]
"""The choices that an input is made from: counts, lengths, and positions in lists of alternatives, by name."""
Build = Callable[["Choices"], Any]


class Choices:
    """Makes the choices of one input. Those that `genes` do not contain are random.

    `largest` is the maximum size of the input. Counts are distributed logarithmically, so that single large ones and products of small ones occur.
    """

    def __init__(self, rng: random.Random, genes: Mapping[str, int], largest: int = LARGEST_INPUT) -> None:
        self._rng, self._given, self.largest = rng, genes, largest
        self.genes: Genes = {}
        self.counts: set[str] = set()

    def count(self, name: str, largest: int) -> int:
        """Return a number from 0 to `largest`."""
        self.counts.add(name)
        value = self._given.get(name)
        if value is None:
            value = int((min(largest, self.largest) + 2) ** self._rng.random()) - 1
        self.genes[name] = max(0, min(value, largest))
        return self.genes[name]

    def pick(self, name: str, alternatives: Sequence[Any]) -> Any:
        """Return one of the alternatives."""
        value = self._given.get(name)
        self.genes[name] = (self._rng.randrange(len(alternatives)) if value is None else value) % len(alternatives)
        return alternatives[self.genes[name]]

    def text(self, name: str, pieces: Sequence[str], largest: int) -> str:
        """Return up to three of the pieces in turn, repeated up to a number of bytes."""
        if not (length := self.count(f"{name} bytes", largest)):
            return ""
        unit = "".join(self.pick(f"{name} {number}", ("", *pieces)) for number in range(3)) or pieces[0]
        return unit * (length // len(unit))


def size(value: Any, sizes: dict[int, int] | None = None) -> int:
    """Return about the size of a value in JSON. Parts that occur repeatedly are measured once."""
    if isinstance(declared := getattr(value, "size", None), int):
        return declared
    sizes = {} if sizes is None else sizes
    if isinstance(value, bytes):
        return len(value)
    if not isinstance(value, str | dict | list | tuple):
        return 4
    if (result := sizes.get(id(value))) is None and isinstance(value, str):
        result = sizes[id(value)] = len(json.dumps(value))
    elif result is None:
        keys = sum(len(key) + 4 for key in value) if isinstance(value, dict) else 0
        items = value.values() if isinstance(value, dict) else value
        result = sizes[id(value)] = keys + sum(size(item, sizes) + 2 for item in items)
    return result


class Shape(NamedTuple):
    """An input and the genes that it is made from. `counts` are the genes that grow with the size."""

    value: Any
    size: int
    genes: Genes
    counts: frozenset[str]

    @property
    def alternatives(self) -> tuple[tuple[str, int], ...]:
        """Return the genes that do not grow, which distinguish shapes from each other."""
        return tuple(sorted((name, value) for name, value in self.genes.items() if name not in self.counts))

    def is_like(self, other: Shape) -> bool:
        """Return whether a shape differs from another one at most in its counts."""
        return self.alternatives == other.alternatives or (self.size == other.size and self.value == other.value)


def make(rng: random.Random, genes: Mapping[str, int], build: Build, largest: int = LARGEST_INPUT) -> Shape:
    """Return an input of at most `largest` bytes. The largest count is reduced while it is larger."""
    while True:
        choices = Choices(rng, genes, largest)
        value = build(choices)
        length = size(value)
        if length <= largest or not any(choices.genes[name] for name in choices.counts):
            return Shape(value, length, choices.genes, frozenset(choices.counts))
        name = max(choices.counts, key=lambda name: choices.genes[name])
        genes = {**choices.genes, name: choices.genes[name] // max(2, math.isqrt(length // largest))}


def enlarge(shape: Shape, build: Build, largest: int, grown: Sequence[str]) -> Shape:
    """Return the shape with larger counts, so that it has almost `largest` bytes if possible."""

    def scaled(factor: float) -> Shape:
        genes = {**shape.genes, **{name: int(shape.genes[name] * factor) for name in grown}}
        choices = Choices(random.Random(0), genes)
        value = build(choices)
        return Shape(value, size(value), choices.genes, frozenset(choices.counts))

    step = 2.0 ** (1 / max(1, len(grown)))  # so that products double as well
    best, low, high = shape, 1.0, step
    while (candidate := scaled(high)).size <= largest and high < 4 * largest / max(shape.size, 1):
        best, low, high = candidate, high, high * step
    for _ in range(4):
        middle = math.sqrt(low * high)
        candidate = scaled(middle)
        if candidate.size <= largest:
            best, low = candidate, middle
        else:
            high = middle
    return best


class Cost(NamedTuple):
    """CPU seconds, allocated bytes, and the CPU seconds of the longest step of the event loop."""

    cpu: float
    memory: int = 0
    step: float = 0.0

    @property
    def total(self) -> float:
        """Return the cost in seconds."""
        return self.cpu + self.memory / MEMORY_PER_SECOND + self.step / STEP_SECONDS


class Ranked(NamedTuple):
    """A shape of about 32 kB, and its cost. `exponent` is that of its growth, and `score` the cost at 1 MB.

    If the cost does not grow, the shape has about 8 kB, and `score` is its cost.
    """

    score: float
    exponent: float
    shape: Shape
    grown: tuple[str, ...]


class HillClimber:
    """Proposes genes. Three quarters of the proposals are changes of the best ones, and the others are random.

    The best shapes differ in their values and in their alternatives, and not only in their counts.
    """

    BEST = 12

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.best: list[Ranked] = []
        self._seeds: list[tuple[float, Genes]] = []

    def propose(self) -> Genes:
        """Return the genes of the next input. Absent ones are random."""
        if not self._seeds or self._rng.random() < 0.25:
            return {}
        genes = dict(self._rng.choice(self._seeds)[1])
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

    def learn(self, genes: Genes, ranked: Ranked) -> None:
        """Add a shape, and the genes of the small input that it has grown from."""
        same = [other for other in self.best if ranked.shape.is_like(other.shape)]
        if any(other.score >= ranked.score for other in same):
            return
        others = [other for other in self.best if other not in same]
        self.best = sorted([*others, ranked], key=lambda other: -other.score)[: self.BEST]
        self._seeds = sorted([*self._seeds, (ranked.score, genes)], key=lambda pair: -pair[0])[: self.BEST]


def search(build: Build, measure: Callable[[Shape, bool], Cost], inputs: int, seed: str) -> Iterator[HillClimber]:
    """Search for expensive shapes, and yield the climber after each input.

    `measure` processes an input. Its second argument is whether to measure memory, which takes longer.
    """
    rng, climber = random.Random(seed), HillClimber(random.Random(f"{seed} climb"))
    costs: list[float] = []
    comparing = ranking = 0.0
    for number in range(inputs):
        started = time.process_time()
        small = make(rng, climber.propose(), build, SMALL)
        cost = measure(small, False).cpu
        costs = [*costs[-200:], cost]
        compared = time.process_time()
        comparing += compared - started
        is_promising = cost >= sorted(costs)[len(costs) * 19 // 20] or rng.random() < 0.02
        if number < 20 or (is_promising and ranking < RANKING * comparing):
            climber.learn(small.genes, rank(rng, small, build, measure))
            ranking += time.process_time() - compared
        yield climber


def rank(rng: random.Random, small: Shape, build: Build, measure: Callable[[Shape, bool], Cost]) -> Ranked:
    """Measure a shape at 8 and 32 kB, and estimate its cost at 1 MB. Either all counts grow, or one of them."""
    grows = sorted(name for name in small.counts if small.genes[name])
    grown = tuple(grows) if rng.random() < 0.5 or not grows else (rng.choice(grows),)
    medium = enlarge(small, build, MEDIUM, grown)
    large = enlarge(medium, build, LARGE, grown)
    if large.size < 1.5 * medium.size:  # limited by its largest counts
        return Ranked(measure(large, True).total, 0.0, large, grown)
    before, after = measure(medium, True).total, measure(large, True).total
    if after < before:  # an object that exceeds a limit is not processed further
        return Ranked(before, 0.0, medium, grown)
    exponent = max(0.0, math.log(max(after, 1e-6) / max(before, 1e-6)) / math.log(large.size / medium.size))
    return Ranked(after * (LARGEST_INPUT / large.size) ** min(exponent, 3.0), exponent, large, grown)

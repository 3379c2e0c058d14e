"""Objects and Pods that a search for the largest cost per byte has found: each is accepted or rejected with its path.

The work for each is limited by a number of calls, not by time. `bench/hostile.py` searches for more.
"""

from __future__ import annotations

import json
import pathlib
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.ingest.decode import OWN, decode_document
from testing.hostile import objects
from testing.hostile.search import Choices, make
from testing.kube.webhooks import config_texts, review
from testing.mesh.problems import problems_of
from testing.mesh.world import World, proxy
from webhook.inject.config import decode_config
from webhook.server.pod_review import InjectionSettings, PodFacts
from webhook.server.program import PodReview, review_config, review_pod

CORPUS: dict[str, list[dict[str, int]]] = json.loads((pathlib.Path(objects.__file__).parent / "worst.json").read_text())
CALLS_PER_BYTE = 30
FIXED_CALLS = 2_000_000
"""Limits of the calls for an input. The worst one of the corpus takes about a third of them."""
INPUTS = [(family, number) for family in CORPUS for number in range(len(CORPUS[family]))]


class TooMuchWork(BaseException):
    """An input caused more calls than the limit. No handler of exceptions catches this."""


@contextmanager
def limited_calls(most: int) -> Iterator[None]:
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > most:
            raise TooMuchWork(f"more than {most} calls")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


def build(family: str, number: int) -> tuple[Any, int]:
    """Return an input and its size in bytes."""
    builders: dict[str, Callable[[Choices], Any]] = {**objects.CONFIGURATION, "Pods": objects.pods}
    value, genes = make(random.Random(0), CORPUS[family][number], builders[family])
    assert genes == CORPUS[family][number]
    return value, len(json.dumps(value))


@pytest.mark.parametrize(("family", "number"), [pair for pair in INPUTS if pair[0] != "Pods"])
def test_worst_object_is_processed_in_linear_work(family: str, number: int) -> None:
    plain, size = build(family, number)
    world = World()
    sidecar = world.connect(proxy("sidecar", "web", "hostile", "10.0.0.1"))
    router = world.connect(proxy("router", "edge", "hostile", "10.0.0.2", {"istio": "ingress"}))
    with limited_calls(FIXED_CALLS + CALLS_PER_BYTE * size):
        decoded = decode_document(plain, origin=OWN)
        response = json.loads(review_config(json.dumps(review(plain)).encode()).body)["response"]
        if not decoded.refused:
            world.set({(entry.table, entry.key): entry.object for entry in decoded.entries})
            for node in (sidecar, router):
                world.resources(node)
            problems_of(world)
    assert not world.failures
    assert not response.get("status", {}).get("message", "").startswith("internal error"), response
    if decoded.refused:
        assert decoded.problems
        assert all(problem.message and problem.code for problem in decoded.problems)
        assert any(problem.path for problem in decoded.problems)


@pytest.mark.parametrize("number", range(len(CORPUS["Pods"])))
def test_worst_pod_is_reviewed_in_linear_work(number: int) -> None:
    plain, size = build("Pods", number)
    settings = InjectionSettings(decode_config(*config_texts()), MeshConfig())
    body = json.dumps(review(plain)).encode()
    with limited_calls(FIXED_CALLS + CALLS_PER_BYTE * size):
        outcome = review_pod(PodReview("/inject", PodFacts()), body, settings)
    response = json.loads(outcome.body)["response"]
    assert not response.get("status", {}).get("message", "").startswith("internal error"), response

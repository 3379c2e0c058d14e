"""Ownership of objects among several sources, and problem counts."""

from __future__ import annotations

from pilot.config.problem import Problem
from pilot.ingest.decode import decode_document
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from testing.mesh.objects import Plain, make


def entry(host: str) -> Plain:
    return make(
        "ServiceEntry",
        "e",
        f"{{hosts: [{host}], resolution: NONE, ports: [{{number: 80, name: http, protocol: HTTP}}]}}",
    )


def test_source_with_the_lower_rank_owns_the_object() -> None:
    ledger = Ledger(ProblemStore())
    first, second = ledger.source(0, "z"), ledger.source(1, "a")
    ((_, _, low_priority),) = second.replace("d", [decode_document(entry("second.example.com"))])
    ((_, _, high_priority),) = first.replace("d", [decode_document(entry("first.example.com"))])
    assert (low_priority.spec.hosts, high_priority.spec.hosts) == (("second.example.com",), ("first.example.com",))
    ((_, _, restored),) = first.remove("d")
    assert restored.spec.hosts == ("second.example.com",)


def test_equal_problems_from_several_sources_are_counted_once() -> None:
    counts: list[tuple[str, int]] = []
    store = ProblemStore(lambda problem: None, lambda code, severity, count: counts.append((code, count)))
    one, other = (Problem(code=code, message="no") for code in ("one", "other"))
    store.replace(("file", "x"), [one, other])
    store.replace(("file", "y"), [one])
    store.replace(("file", "x"), [])
    store.replace(("file", "y"), [])
    assert counts == [("one", 1), ("other", 1), ("other", 0), ("one", 0)]

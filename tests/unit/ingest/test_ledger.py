"""Which of several sources has an object, and how many problems there are of each sort."""

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


def test_of_two_sources_the_one_of_the_lower_rank_has_the_object_whatever_they_are_called() -> None:
    ledger = Ledger(ProblemStore())
    first, second = ledger.source(0, "z"), ledger.source(1, "a")
    ((_, _, had),) = second.replace("d", [decode_document(entry("second.example.com"))])
    ((_, _, has),) = first.replace("d", [decode_document(entry("first.example.com"))])
    assert (had.spec.hosts, has.spec.hosts) == (("second.example.com",), ("first.example.com",))
    ((_, _, back),) = first.remove("d")
    assert back.spec.hosts == ("second.example.com",)


def test_problems_are_counted_once_wherever_they_are_found() -> None:
    counted: list[tuple[str, int]] = []
    store = ProblemStore(lambda problem: None, lambda code, severity, count: counted.append((code, count)))
    one, other = (Problem(code=code, message="no") for code in ("one", "other"))
    store.replace(("file", "x"), [one, other])
    store.replace(("file", "y"), [one])
    store.replace(("file", "x"), [])
    store.replace(("file", "y"), [])
    assert counted == [("one", 1), ("other", 1), ("other", 0), ("one", 0)]

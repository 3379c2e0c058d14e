"""Ownership of objects among several sources, and problem counts."""

from __future__ import annotations

from collections import Counter

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.ingest.decode import Decoded, decode_document
from pilot.ingest.ledger import MAX_LISTED, Ledger
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


def test_problems_of_thousands_of_objects_of_a_namespace_are_not_all_stored() -> None:
    store = ProblemStore(lambda problem: None)
    source = Ledger(store).source(0, "cluster")

    def put(namespace: str, number: int) -> None:
        ref = ObjectRef(SERVICE_ENTRY.id, namespace, f"e{number}")
        row = SERVICE_ENTRY.table_name, ObjectKey(namespace, ref.name)
        messages = [(Severity.WARNING, "a warning"), *((Severity.ERROR, f"error {n}") for n in range(99))]
        problems = tuple(Problem(code="a", object=ref, message=text, severity=kind) for kind, text in messages)
        source.put(row, Decoded(problems=problems, refused=(row,)))

    for number in range(MAX_LISTED // 100 + 3):
        put("hostile", number)
    put("other", 0)
    counts = Counter(problem.object.name for problem in store if problem.object.namespace == "hostile")
    assert set(counts.values()) == {100, 2}
    assert len(store) == MAX_LISTED + 3 * 2 + 100
    assert [str(problem.message) for problem in store if problem.object.name == "e102"] == [
        "error 0",
        "99 more; the objects of namespace hostile have too many to list them",
    ]
    for number in range(MAX_LISTED // 100 + 3):
        source.drop((SERVICE_ENTRY.table_name, ObjectKey("hostile", f"e{number}")))
    put("hostile", 0)
    assert len(store) == 200

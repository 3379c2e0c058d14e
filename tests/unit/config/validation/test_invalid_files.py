"""Invalid objects in configuration files. Each is reported with its path and leaves the other objects in force."""

from __future__ import annotations

import pathlib
import re

from pilot.config.catalogue import CATALOGUE
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.object import ObjectKey
from pilot.config.problem import Severity
from pilot.ingest.batch import Batch
from pilot.ingest.files.file_source import FileSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.mesh.clock import VirtualClock
from testing.rows import Rows
from testing.tables.invalid_objects import InvalidObject, load_invalid_objects

BAD_OBJECTS = load_invalid_objects()
NEIGHBOUR = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: good, namespace: shop}
spec: {hosts: [good.example.com], resolution: NONE, ports: [{number: 80, name: http, protocol: HTTP}]}
"""


def load(folder: pathlib.Path) -> tuple[Mesh, ProblemStore]:
    mesh, problems = Mesh(), ProblemStore()
    batch = Batch(mesh, VirtualClock(), parse_duration("100ms"), parse_duration("10s"), lambda _: None)
    FileSource(str(folder), batch, Ledger(problems).source(0, "files")).load_initial()
    batch.flush()
    return mesh, problems


def test_invalid_object_is_reported_and_others_stay_in_force(tmp_path: pathlib.Path) -> None:
    with Rows() as rows:
        for bad in BAD_OBJECTS:
            with rows.row(bad.name):
                check_beside_valid_objects(bad, tmp_path)


def check_beside_valid_objects(bad: InvalidObject, folder: pathlib.Path) -> None:
    file = folder / "mixed.yaml"
    file.write_text(f"---{NEIGHBOUR}---\n{bad.text}---{NEIGHBOUR.replace('good', 'other')}")
    mesh, problems = load(folder)

    assert [(p.code, p.path) for p in problems] == [(bad.code, bad.path)]
    problem = next(iter(problems))
    assert (problem.severity is not Severity.ERROR) == bad.warns
    assert problem.message
    assert problem.file == str(file)
    assert 1 < problem.line <= 1 + len(file.read_text().splitlines())
    assert ObjectKey("shop", "good") in dict(SERVICE_ENTRY.table(mesh).rows())
    assert ObjectKey("shop", "other") in dict(SERVICE_ENTRY.table(mesh).rows())
    rows = {key for kind in CATALOGUE for key, _ in kind.table(mesh).rows() if key.name == "bad"}
    assert bool(rows) == (bad.warns and bad.code != "unknown-kind")
    if kind := re.search(r"^kind: (\w+)", bad.text, re.MULTILINE):
        assert problem.object.kind.name == kind[1]
    if "name: bad, namespace: shop" in bad.text:
        assert problem.object[1:] == ("shop", "bad")


def test_number_of_invalid_objects() -> None:
    assert len(BAD_OBJECTS) >= 100
    assert len({bad.name for bad in BAD_OBJECTS}) == len(BAD_OBJECTS)

"""Looking at configuration before anybody serves it: the problems of objects in files, alone and with each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.ingest.decode import Decoded, decode_document
from pilot.ingest.documents import Document, SyntaxFault, read_documents, read_json
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.ingest.namespace_filter import Edit, NamespaceFilter
from pilot.mesh.analysis.check import Check
from pilot.mesh.tables.database import EVERY_ACCOUNT, MESH_CONFIG, Mesh
from pilot.settings.mesh import MeshSettings


class ObjectPlace(NamedTuple):
    """Where an object is written. `line_of` gives the line of a path in it, 0 where unknown."""

    file: str
    line_of: Callable[[str], int]


class ReadObjects(NamedTuple):
    """Objects of files as edits of tables, where each is written, and what is wrong with each alone."""

    edits: list[Edit]
    places: dict[ObjectRef, ObjectPlace]
    problems: list[Problem]


def read_objects(texts: Mapping[str, bytes]) -> ReadObjects:
    """Returns the objects of files by name. Of two objects of one name the last counts, which is a problem of it."""
    found = ReadObjects([], {}, [])
    for file, data in texts.items():
        try:
            documents = read_json(data) if file.endswith(".json") else read_documents(data, file)
        except SyntaxFault as fault:
            found.problems.append(Problem(code="syntax-error", message=str(fault), file=file, line=fault.line))
            continue
        for document in documents:
            _add(found, file, document)
    return found


def _add(found: ReadObjects, file: str, document: Document) -> None:
    decoded: Decoded = decode_document(document.plain, file, document.line_of)
    found.problems.extend(decoded.problems)
    alone = len(decoded.entries) == 1
    for entry in decoded.entries:
        ref, line = entry.object.ref, document.line_of("metadata.name")
        if ref in found.places:
            message = f"it is in {found.places[ref].file} too: the last one counts"
            found.problems.append(
                Problem(
                    code="duplicate-object",
                    object=ref,
                    path="metadata.name",
                    message=message,
                    severity=Severity.WARNING,
                    file=file,
                    line=line,
                )
            )
        found.edits.append((entry.table, entry.key, entry.object))
        found.places[ref] = ObjectPlace(file, document.line_of if alone else _nowhere)


def _nowhere(_: str) -> int:
    return 0


def decode_mesh(plain: object) -> tuple[MeshConfig, list[Problem]]:
    """Returns a mesh config, that of nobody's where it is refused, and its problems."""
    mesh, problems = decode_mesh_config([plain] if plain else [])
    return mesh or MeshConfig(), problems


def analyze(
    found: ReadObjects, mesh_config: MeshConfig, settings: MeshSettings, checks: Iterable[Check]
) -> list[Problem]:
    """Returns all problems: those of objects alone, and those that `checks` find between them, by file and line."""
    mesh = Mesh(settings)
    edits: list[Edit] = [(MESH_CONFIG, "mesh", mesh_config), (MESH_CONFIG, "networks", MeshNetworks()), *found.edits]
    mesh.commit([(mesh.tables[table], key, row) for table, key, row in NamespaceFilter(mesh).admit(edits)])
    mesh.commit([(mesh.secret_access, EVERY_ACCOUNT, True)])
    between = [problem for check in checks for key in check.keys(mesh) for problem in check.problems(mesh, key)]
    return sorted({*found.problems, *(_placed(p, found.places) for p in between)}, key=_order)


def _placed(problem: Problem, places: Mapping[ObjectRef, ObjectPlace]) -> Problem:
    place = places.get(problem.object)
    return (
        problem
        if place is None
        else msgspec.structs.replace(problem, file=place.file, line=place.line_of(problem.path))
    )


def _order(problem: Problem) -> tuple[str, int, str]:
    return problem.file, problem.line, str(problem)

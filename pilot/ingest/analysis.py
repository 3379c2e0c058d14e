"""Analyses configuration files: validates each object, and checks objects against each other."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from pilot.config.kubernetes.pod import Pod
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.config.object import Object
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.ingest.decode import Decoded, decode_document
from pilot.ingest.files.chunks import split
from pilot.ingest.files.documents import Document, SyntaxFault, read_chunk, read_json
from pilot.ingest.files.file_decoder import repeated_keys
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.ingest.namespace_filter import Edit, NamespaceFilter
from pilot.ingest.pod_templates import pod_templates
from pilot.mesh.analysis.check import Check
from pilot.mesh.tables.database import EVERY_ACCOUNT, MESH_CONFIG, POD_TEMPLATES, Mesh
from pilot.settings.mesh import MeshSettings

OnStep = Callable[[str, int, int], None]
"""Receives the progress of a step: its name, how much of it is done, and the total."""


class ObjectPlace(NamedTuple):
    """The location of an object in a file. `line_of` returns the line of a field path, or 0 if it is unknown."""

    file: str
    line_of: Callable[[str], int]


@dataclasses.dataclass
class ReadObjects:
    """Objects read from files, as table edits, with the location of each object and the validation problems.

    `count` is the number of objects in the files, valid or not, of which `ignored` belong to kinds that a mesh does not
    use. `documents` contains the documents with their files. `templates` contains the Pod templates of workloads, by
    workload.
    """

    edits: list[Edit] = dataclasses.field(default_factory=list)
    places: dict[ObjectRef, ObjectPlace] = dataclasses.field(default_factory=dict)
    problems: list[Problem] = dataclasses.field(default_factory=list)
    count: int = 0
    ignored: int = 0
    documents: list[tuple[str, Document]] = dataclasses.field(default_factory=list)
    templates: dict[ObjectRef, Object[Pod]] = dataclasses.field(default_factory=dict)


def _ignore(step: str, done: int, total: int) -> None:
    """Ignore the progress of a step."""


def read_objects(texts: Mapping[str, bytes], on_step: OnStep = _ignore) -> ReadObjects:
    """Read the objects in files. `texts` maps file names to file contents.

    If several objects have the same key, the first one wins, as in a running control plane, and a warning is reported.
    `on_step` is called with the progress in bytes.
    """
    objects, before, total = ReadObjects(), 0, sum(map(len, texts.values()))
    for file, data in texts.items():
        # Parsing and decoding take about the same time, so each counts as half of the file.
        try:
            documents = []
            for chunk_documents, end in _read(file, data):
                documents += chunk_documents
                on_step("Reading", before + end // 2, total)
        except SyntaxFault as fault:
            objects.problems.append(Problem(code="syntax-error", message=str(fault), file=file, line=fault.line))
            documents = []
        objects.documents += [(file, document) for document in documents]
        for number, document in enumerate(documents):
            _add(objects, file, document)
            on_step("Reading", before + len(data) * (len(documents) + number + 1) // (2 * len(documents)), total)
        before += len(data)
    return objects


def _read(file: str, data: bytes) -> Iterator[tuple[list[Document], int]]:
    """Yield the documents of each part of a file, and the offset of the part's end. Raise SyntaxFault if one is
    invalid."""
    if file.endswith(".json"):
        yield read_json(data), len(data)
        return
    end = 0
    for chunk in split(data):
        end += len(chunk.text)
        yield read_chunk(chunk), end


def _add(objects: ReadObjects, file: str, document: Document) -> None:
    objects.templates.update(pod_templates(document.plain))
    decoded: Decoded = decode_document(document.plain, file, document.line_of, strict=True)
    objects.count += decoded.total
    objects.ignored += decoded.ignored
    objects.problems.extend(decoded.problems)
    subject = next((entry.object.ref for entry in decoded.entries), ObjectRef())
    objects.problems.extend(repeated_keys(document, subject, file, strict=True))
    single = len(decoded.entries) == 1
    for entry in decoded.entries:
        ref, line = entry.object.ref, document.line_of("metadata.name")
        if ref in objects.places:
            first = objects.places[ref]
            place = f"{first.file}:{number}" if (number := first.line_of("metadata.name")) else first.file
            message = f"this object is also defined in {place}, which takes precedence"
            objects.problems.append(
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
            continue
        objects.edits.append((entry.table, entry.key, entry.object))
        objects.places[ref] = ObjectPlace(file, document.line_of if single else _nowhere)


def add_surroundings(objects: ReadObjects, plains: Iterable[object]) -> None:
    """Add the objects of a cluster, except those that are also in the files. Their own problems are not reported."""
    for plain in plains:
        for ref, template in pod_templates(plain):
            objects.templates.setdefault(ref, template)
        for entry in decode_document(plain).entries:
            ref = entry.object.ref
            if ref not in objects.places:
                objects.edits.append((entry.table, entry.key, entry.object))


def _nowhere(_: str) -> int:
    return 0


def decode_mesh(plain: object) -> tuple[MeshConfig, list[Problem]]:
    """Return a mesh config and its problems. If the mesh config is invalid, the defaults are returned."""
    mesh, problems = decode_mesh_config([plain] if plain else [])
    return mesh or MeshConfig(), problems


def analyze(
    objects: ReadObjects,
    mesh_config: MeshConfig,
    settings: MeshSettings,
    checks: Iterable[Check],
    on_step: OnStep = _ignore,
) -> list[Problem]:
    """Return the validation problems and the problems that `checks` report, sorted by file and line.

    `on_step` is called with the number of objects that have been checked.
    """
    mesh = Mesh(settings)
    edits: list[Edit] = [
        (MESH_CONFIG, "mesh", mesh_config),
        (MESH_CONFIG, "networks", MeshNetworks()),
        *objects.edits,
        *((POD_TEMPLATES, ref, template) for ref, template in objects.templates.items()),
    ]
    mesh.commit([(mesh.tables[table], key, row) for table, key, row in NamespaceFilter(mesh).admit(edits)])
    mesh.commit([(mesh.secret_access, EVERY_ACCOUNT, True), (mesh.clock, "now", time.time())])
    subjects = [(check, key) for check in checks for key in check.keys(mesh)]
    check_problems: list[Problem] = []
    for number, (check, key) in enumerate(subjects, 1):
        check_problems += check.problems(mesh, key)
        on_step("Checking", number, len(subjects))
    return sorted({*objects.problems, *(_placed(p, objects.places) for p in check_problems)}, key=_order)


def _placed(problem: Problem, places: Mapping[ObjectRef, ObjectPlace]) -> Problem:
    place = places.get(problem.object)
    return (
        problem
        if place is None
        else msgspec.structs.replace(problem, file=place.file, line=place.line_of(problem.path))
    )


def _order(problem: Problem) -> tuple[str, int, str]:
    return problem.file, problem.line, str(problem)

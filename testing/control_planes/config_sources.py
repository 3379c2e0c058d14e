"""All sources of configuration behind one interface: named documents that are set and removed."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any, Protocol

from pilot.config.object import Object
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.decode import Decoded, Row, decode_document
from pilot.ingest.files.documents import read_documents
from pilot.ingest.ledger import Ledger
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.control_planes.config_folder import ConfigFolder
from testing.control_planes.kube_config_source import KubeConfigSource
from testing.control_planes.mcp_config_source import McpConfigSource
from testing.mesh.clock import VirtualClock

Rows = dict[tuple[str, str, str], Object[Any]]
"""Objects by table, namespace and name."""


class Source(Protocol):
    """A source of configuration. `set` and `remove` have taken effect, after debouncing, when they return."""

    mesh: Mesh
    problems: ProblemStore
    commits: list[Commit]

    def set(self, name: str, text: str) -> None: ...
    def remove(self, name: str) -> None: ...


def rows(mesh: Mesh) -> Rows:
    """Return the rows of all configuration objects."""
    tables = [kind.table(mesh) for kind in mesh.catalogue]
    return {(table.name, key.namespace, key.name): row for table in tables for key, row in table.rows()}


class FileConfigSource(ConfigFolder):
    """Reads documents from files."""

    def set(self, name: str, text: str) -> None:
        self.write(f"{name}.yaml", text)
        self.notify(f"{name}.yaml")

    def remove(self, name: str) -> None:
        (self.folder / f"{name}.yaml").unlink()
        self.notify(f"{name}.yaml")


class MemoryConfigSource:
    """Takes documents directly. Several may share a ledger."""

    def __init__(self, rank: int = 0, name: str = "memory", shared_with: MemoryConfigSource | None = None) -> None:
        if shared_with is None:
            self.mesh, self.problems, self.clock = Mesh(), ProblemStore(lambda _: None), VirtualClock()
            self.commits: list[Commit] = []
            self.batch = Batch(
                self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), self.commits.append
            )
            self.ledger = Ledger(self.problems)
        else:
            self.mesh, self.problems, self.clock = shared_with.mesh, shared_with.problems, shared_with.clock
            self.commits, self.batch, self.ledger = shared_with.commits, shared_with.batch, shared_with.ledger
        self.source = self.ledger.source(rank, name)

    def set(self, name: str, text: str) -> None:
        documents = read_documents(text.encode(), "memory.yaml")
        self._put(self.source.replace(name, [decode_document(d.plain, name) for d in documents]))

    def remove(self, name: str) -> None:
        self._put(self.source.remove(name))

    def _put(self, edits: Iterable[Edit]) -> None:
        self.batch.put(edits)
        self.clock.advance(1)


class ObjectConfigSource(MemoryConfigSource):
    """Takes objects one by one, as from an API server. A name stands for a set of objects."""

    def __init__(self, rank: int = 0, name: str = "objects", shared_with: MemoryConfigSource | None = None) -> None:
        super().__init__(rank, name, shared_with)
        self._named: dict[str, set[Row]] = {}

    def set(self, name: str, text: str) -> None:
        objects = {
            row: decoded
            for d in read_documents(text.encode(), "memory.yaml")
            for row, decoded in _row_of(decode_document(d.plain))
        }
        removed = self._named.get(name, set()) - objects.keys()
        self._named[name] = set(objects)
        self._put(
            [edit for row in sorted(removed) for edit in self.source.drop(row)]
            + [e for row in objects for e in self.source.put(row, objects[row])]
        )

    def remove(self, name: str) -> None:
        self._put([edit for row in sorted(self._named.pop(name)) for edit in self.source.drop(row)])

    def list(self, text: str) -> None:
        """Replace everything at once, as after a reconnect."""
        objects = {
            row: decoded
            for d in read_documents(text.encode(), "memory.yaml")
            for row, decoded in _row_of(decode_document(d.plain))
        }
        self._put(
            [
                *self.source.retain(objects.keys()),
                *(edit for row in objects for edit in self.source.put(row, objects[row])),
            ]
        )


def _row_of(decoded: Decoded) -> list[tuple[Row, Decoded]]:
    return [((e.table, e.key), decoded) for e in decoded.entries] + [(row, decoded) for row in decoded.refused]


def make(kind: str, folder: pathlib.Path) -> Source:
    if kind.startswith("kubernetes"):
        return KubeConfigSource(streams=kind == "kubernetes streams")
    if kind == "mcp":
        return McpConfigSource()
    return (
        FileConfigSource(folder)
        if kind == "files"
        else MemoryConfigSource()
        if kind == "memory"
        else ObjectConfigSource()
    )


KINDS = ("files", "memory", "objects", "kubernetes pages", "kubernetes streams", "mcp")
DOCUMENT_SOURCES = ("files", "memory")
"""The sources in which two documents can contain the same object."""

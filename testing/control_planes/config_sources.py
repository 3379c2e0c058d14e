"""The sources of configuration as one test suite sees them: documents under a name, set and removed."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any, Protocol

from pilot.config.object import Object
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.decode import Decoded, Row, decode_document
from pilot.ingest.documents import read_documents
from pilot.ingest.ledger import Ledger
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.control_planes.config_folder import Files
from testing.control_planes.kube_config_source import KubeConfig
from testing.control_planes.mcp_config_source import McpConfig
from testing.mesh.clock import VirtualClock

Rows = dict[tuple[str, str, str], Object[Any]]
"""Objects by table, namespace and name."""


class Source(Protocol):
    """`set` and `remove` take effect, debounced, before they return."""

    mesh: Mesh
    problems: ProblemStore
    commits: list[Commit]

    def set(self, name: str, text: str) -> None: ...
    def remove(self, name: str) -> None: ...


def rows(mesh: Mesh) -> Rows:
    """Every row of users' objects."""
    tables = [kind.table(mesh) for kind in mesh.catalogue]
    return {(table.name, key.namespace, key.name): row for table in tables for key, row in table.rows()}


class FileConfig(Files):
    """Documents as files."""

    def set(self, name: str, text: str) -> None:
        self.write(f"{name}.yaml", text)
        self.tell(f"{name}.yaml")

    def remove(self, name: str) -> None:
        (self.folder / f"{name}.yaml").unlink()
        self.tell(f"{name}.yaml")


class MemoryConfig:
    """Documents that somebody hands over, to a ledger that others may share."""

    def __init__(self, rank: int = 0, name: str = "memory", beside: MemoryConfig | None = None) -> None:
        if beside is None:
            self.mesh, self.problems, self.clock = Mesh(), ProblemStore(lambda _: None), VirtualClock()
            self.commits: list[Commit] = []
            self.batch = Batch(
                self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), self.commits.append
            )
            self.ledger = Ledger(self.problems)
        else:
            self.mesh, self.problems, self.clock = beside.mesh, beside.problems, beside.clock
            self.commits, self.batch, self.ledger = beside.commits, beside.batch, beside.ledger
        self.source = self.ledger.source(rank, name)

    def set(self, name: str, text: str) -> None:
        documents = read_documents(text.encode(), "memory.yaml")
        self._put(self.source.replace(name, [decode_document(d.plain, name) for d in documents]))

    def remove(self, name: str) -> None:
        self._put(self.source.remove(name))

    def _put(self, edits: Iterable[Edit]) -> None:
        self.batch.put(edits)
        self.clock.advance(1)


class ObjectConfig(MemoryConfig):
    """Objects one by one, as an API server gives them: each is put and dropped by its row. A name stands for some of them."""

    def __init__(self, rank: int = 0, name: str = "objects", beside: MemoryConfig | None = None) -> None:
        super().__init__(rank, name, beside)
        self._named: dict[str, set[Row]] = {}

    def set(self, name: str, text: str) -> None:
        found = {
            row: decoded
            for d in read_documents(text.encode(), "memory.yaml")
            for row, decoded in _row_of(decode_document(d.plain))
        }
        gone = self._named.get(name, set()) - found.keys()
        self._named[name] = set(found)
        self._put(
            [edit for row in sorted(gone) for edit in self.source.drop(row)]
            + [e for row in found for e in self.source.put(row, found[row])]
        )

    def remove(self, name: str) -> None:
        self._put([edit for row in sorted(self._named.pop(name)) for edit in self.source.drop(row)])

    def list(self, text: str) -> None:
        """Take everything at once, as after a reconnect."""
        found = {
            row: decoded
            for d in read_documents(text.encode(), "memory.yaml")
            for row, decoded in _row_of(decode_document(d.plain))
        }
        self._put(
            [*self.source.retain(found.keys()), *(edit for row in found for edit in self.source.put(row, found[row]))]
        )


def _row_of(decoded: Decoded) -> list[tuple[Row, Decoded]]:
    return [((e.table, e.key), decoded) for e in decoded.entries] + [(row, decoded) for row in decoded.refused]


def make(kind: str, folder: pathlib.Path) -> Source:
    if kind.startswith("kubernetes"):
        return KubeConfig(streams=kind == "kubernetes streams")
    if kind == "mcp":
        return McpConfig()
    return FileConfig(folder) if kind == "files" else MemoryConfig() if kind == "memory" else ObjectConfig()


KINDS = ("files", "memory", "objects", "kubernetes pages", "kubernetes streams", "mcp")
OF_DOCUMENTS = ("files", "memory")
"""The sources of which two documents can hold the same object."""

"""The sources of configuration as one test suite sees them: documents under a name, set and removed."""
from __future__ import annotations

import pathlib
from typing import Any, Protocol

from pilot.ingest.batch import Batch, Commit
from pilot.ingest.decode import decode_document
from pilot.ingest.documents import read_documents
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.model.config.object import Object
from pilot.model.inputs import Mesh
from tests.support.clock import VirtualClock
from tests.support.files import Files

Rows = dict[tuple[str, str, str], Object[Any]]
"""By table, namespace and name."""


class Source(Protocol):
    """`set` and `remove` take effect, debounced, before they return."""

    mesh: Mesh
    problems: ProblemStore
    commits: list[Commit]

    def set(self, name: str, text: str) -> None: ...
    def remove(self, name: str) -> None: ...


def rows(mesh: Mesh) -> Rows:
    """Every row of users' objects."""
    return {
        (table.name, key.namespace, key.name): row for table in mesh.tables.values() if table.name != "MeshConfig" for key, row in table.rows()
    }


class FileConfig(Files):
    """Documents as files."""

    def set(self, name: str, text: str) -> None:
        self.write(f"{name}.yaml", text)
        self.tell(f"{name}.yaml")

    def remove(self, name: str) -> None:
        (self.folder / f"{name}.yaml").unlink()
        self.tell(f"{name}.yaml")


class MemoryConfig:
    """Documents that somebody hands over."""

    def __init__(self) -> None:
        self.mesh, self.problems, self.clock = Mesh(), ProblemStore(lambda _: None), VirtualClock()
        self.commits: list[Commit] = []
        self._batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), self.commits.append)
        self._ledger = Ledger(self.problems)

    def set(self, name: str, text: str) -> None:
        documents = read_documents(text.encode(), "memory.yaml")
        self._batch.put(self._ledger.replace(name, (decode_document(d.plain, name) for d in documents)))
        self.clock.advance(1)

    def remove(self, name: str) -> None:
        self._batch.put(self._ledger.remove(name))
        self.clock.advance(1)


def make(kind: str, folder: pathlib.Path) -> Source:
    return FileConfig(folder) if kind == "files" else MemoryConfig()


KINDS = ("files", "memory")

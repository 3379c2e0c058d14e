"""Mesh config and mesh networks from a file each, live. Without the file the defaults hold; a wrong one leaves what was there."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pilot.ingest.batch import Batch
from pilot.ingest.documents import Document, SyntaxFault, read_documents
from pilot.ingest.lines import Lines
from pilot.ingest.mesh_config import MESH, NETWORKS, decode_mesh_config, decode_mesh_networks
from pilot.ingest.problems import ProblemStore
from pilot.ingest.watch import Watch
from pilot.model.config.mesh_config import MeshConfig
from pilot.model.config.mesh_networks import MeshNetworks
from pilot.model.problem import ObjectRef, Problem

Decode = Callable[[Any], tuple[Any, list[Problem]]]


class MeshFiles:
    """The rows "mesh" and "networks" of the table `mesh`. `load_initial` once, which always gives both; then `start` and `stop`."""

    def __init__(self, mesh_config: str, networks: str, batch: Batch, problems: ProblemStore) -> None:
        self._files = (
            _MeshFile(mesh_config, "mesh", MESH, MeshConfig(), lambda plain: decode_mesh_config([plain]), batch, problems),
            _MeshFile(networks, "networks", NETWORKS, MeshNetworks(), decode_mesh_networks, batch, problems),
        )

    def load_initial(self) -> None:
        for file in self._files:
            file.load(first=True)

    async def start(self) -> None:
        for file in self._files:
            await file.start()

    async def stop(self) -> None:
        for file in self._files:
            await file.stop()


class _MeshFile:
    """One row, from one file."""

    def __init__(self, path: str, key: str, subject: ObjectRef, default: Any, decode: Decode, batch: Batch, problems: ProblemStore) -> None:
        self._path, self._key, self._subject = os.path.abspath(path), key, subject
        self._default, self._decode, self._batch, self._problems = default, decode, batch, problems
        self._data: bytes | None = None
        parent = os.path.dirname(self._path)
        self._watch = Watch(parent, lambda _: self.load(), self.load, recursive=False) if os.path.isdir(parent) else None

    async def start(self) -> None:
        """Follow the file; one whose folder did not exist at the start is not followed."""
        if self._watch is not None:
            await self._watch.start()

    async def stop(self) -> None:
        if self._watch is not None:
            await self._watch.stop()

    def load(self, first: bool = False) -> None:
        """Take the file as it is now, if it is another one."""
        try:
            with open(self._path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            data = None
        except OSError as fault:
            self._report([Problem(code="unreadable-file", message=fault.strerror or str(fault))])
            data = self._data
        if data == self._data and not first:
            return
        self._data = data
        value, problems = self._read(data) if data is not None else (self._default, [])
        self._report(problems, data or b"")
        if value is None and first:
            value = self._default
        if value is not None:
            self._batch.put([("mesh", self._key, value)])

    def _read(self, data: bytes) -> tuple[Any, list[Problem]]:
        try:
            documents = read_documents(data, self._path)
        except SyntaxFault as fault:
            return None, [Problem(code="syntax-error", message=str(fault), line=fault.line)]
        if len(documents) > 1:
            return None, [Problem(code="too-many-documents", message="one document is expected", line=documents[1].line)]
        return self._decode((documents or [Document(None, 1)])[0].plain)

    def _report(self, problems: Iterable[Problem], data: bytes = b"") -> None:
        line_of = Lines(data, 0, 1)
        placed = [msgspec.structs.replace(p, object=self._subject, file=self._path, line=p.line or line_of(p.path)) for p in problems]
        self._problems.replace((self._path, ""), placed)

"""Mesh config and mesh networks from a file each, live. Without the file the defaults hold; a wrong one leaves what was there."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.config.problem import ObjectRef, Problem
from pilot.ingest.batch import Batch
from pilot.ingest.documents import Document, SyntaxFault, read_documents
from pilot.ingest.folder import shown
from pilot.ingest.mesh_config import MESH, NETWORKS, decode_mesh_config, decode_mesh_networks
from pilot.ingest.open_file import LARGEST, NoFile, TooLarge, read_file
from pilot.ingest.problems import ProblemStore
from pilot.ingest.watch import Watch
from pilot.lib.log import scope
from pilot.mesh.tables.database import MESH_CONFIG

_log = scope("config")
RETRY = 2.0
"""Seconds after which what could not be read is tried again."""
Decode = Callable[[Any], tuple[Any, list[Problem]]]


class MeshFiles:
    """The rows "mesh" and "networks" of the table `mesh`, but one whose path is "" comes from somewhere else.

    `load_initial` once, which always gives them; then `start` and `stop`.
    """

    def __init__(self, mesh_config: str, networks: str, batch: Batch, problems: ProblemStore) -> None:
        rows: tuple[tuple[str, str, ObjectRef, Any, Decode], ...] = (
            (mesh_config, "mesh", MESH, MeshConfig(), lambda plain: decode_mesh_config([plain])),
            (networks, "networks", NETWORKS, MeshNetworks(), decode_mesh_networks),
        )
        self._files = tuple(
            _MeshFile(path, key, subject, default, decode, batch, problems)
            for path, key, subject, default, decode in rows
            if path
        )
        self._retrying: asyncio.Task[None] | None = None

    def load_initial(self) -> None:
        for file in self._files:
            file.load(first=True)

    def retry(self) -> None:
        """Looks again at what could not be read."""
        for file in self._files:
            file.retry()

    async def start(self) -> None:
        """Follows the files; their folders may come later."""
        for file in self._files:
            await file.start()
        self._retrying = asyncio.create_task(self._retry(), name="retry the mesh config")

    async def stop(self) -> None:
        for file in self._files:
            await file.stop()
        if self._retrying is not None:
            self._retrying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._retrying

    async def _retry(self) -> None:
        while True:
            await asyncio.sleep(RETRY)
            self.retry()


class _MeshFile:
    """One row, from one file."""

    def __init__(
        self,
        path: str,
        key: str,
        subject: ObjectRef,
        default: Any,
        decode: Decode,
        batch: Batch,
        problems: ProblemStore,
    ) -> None:
        self._path, self._key, self._subject = os.path.abspath(path), key, subject
        self._default, self._decode, self._batch, self._problems = default, decode, batch, problems
        self._data: bytes | None = None
        self._failed = False
        self._watch = Watch(
            os.path.dirname(self._path), lambda _: self.load(), self.load, recursive=False, optional=True
        )

    async def start(self) -> None:
        await self._watch.start()

    async def stop(self) -> None:
        await self._watch.stop()

    def retry(self) -> None:
        """Looks again at a file that could not be read."""
        if self._failed:
            self.load()

    def load(self, first: bool = False) -> None:
        """Takes the file as it is now, if it is another one."""
        try:
            data = self._open()
        except (OSError, TooLarge) as fault:
            self._fail(fault, first)
            return
        if data == self._data and not self._failed and not first:
            return
        self._data, self._failed = data, False
        value, problems = self._read(data) if data is not None else (self._default, [])
        self._report(problems)
        self._put(value, first)

    def _fail(self, fault: OSError | TooLarge, first: bool) -> None:
        """Tells why the file cannot be read. What was read before stays."""
        self._failed = True
        code = "file-too-large" if isinstance(fault, TooLarge) else "unreadable-file"
        reason = (isinstance(fault, OSError) and fault.strerror) or str(fault)
        self._report([Problem(code=code, message=f"{reason}; what was read before stays")])
        self._put(None, first)

    def _put(self, value: Any, first: bool) -> None:
        """Sets the row; where there is no right value the first one is the default."""
        if value is None and first:
            value = self._default
        if value is not None:
            self._batch.put([(MESH_CONFIG, self._key, value)])

    def _open(self) -> bytes | None:
        """Returns the bytes of the file, None where there is none. Raises OSError or TooLarge."""
        try:
            return read_file(self._path, LARGEST)[0]
        except (FileNotFoundError, NotADirectoryError, NoFile):
            return None

    def _read(self, data: bytes) -> tuple[Any, list[Problem]]:
        try:
            documents = read_documents(data, self._path)
        except SyntaxFault as fault:
            return None, [Problem(code="syntax-error", message=str(fault), line=fault.line)]
        except Exception as fault:  # a bug of ours, or no memory: what was read before goes on
            _log.error("cannot read %s", shown(self._path), exc_info=True)
            return None, [Problem(code="internal-error", message=f"{type(fault).__name__}: {fault}")]
        if len(documents) > 1:
            return None, [
                Problem(code="too-many-documents", message="one document is expected", line=documents[1].line)
            ]
        document = (documents or [Document(None, 1)])[0]
        value, problems = self._decode(document.plain)
        return value, [msgspec.structs.replace(p, line=document.line_of(p.path)) for p in problems]

    def _report(self, problems: Iterable[Problem]) -> None:
        placed = [msgspec.structs.replace(p, object=self._subject, file=shown(self._path)) for p in problems]
        self._problems.replace((self._path, ""), placed)

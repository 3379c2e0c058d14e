"""Reads mesh config and mesh networks from files, and watches the files.

If a file does not exist, the defaults apply, unless the file is required. If a file becomes invalid, its last valid
version stays in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.config.problem import ObjectRef, Problem
from pilot.ingest.batch import Batch
from pilot.ingest.files.documents import SyntaxFault, read_document
from pilot.ingest.files.file_io import LARGEST, NoFile, TooLarge, read_file
from pilot.ingest.files.watch import Watch
from pilot.ingest.mesh_config import MESH, NETWORKS, decode_mesh_config, decode_mesh_networks
from pilot.ingest.problems import ProblemStore
from pilot.lib.logging.log import scope
from pilot.lib.similar_path import suggest_path
from pilot.lib.text import printable_path
from pilot.mesh.tables.database import MESH_CONFIG

_log = scope("config")
UNREADABLE = "unreadable-file"
"""Code of the problem of a file that cannot be read."""
RETRY = 2.0
"""Seconds between attempts to read an unreadable file."""
Decode = Callable[[Any], tuple[Any, list[Problem]]]


class MeshFiles:
    """Reads the rows "mesh" and "networks" of the table `mesh`.

    If the path of a row is "", another source provides the row. Files whose paths are in `required` must exist. Call
    `load_initial` once, which always sets the rows. Then call `start`, and finally `stop`.
    """

    def __init__(
        self,
        mesh_config: str,
        networks: str,
        batch: Batch,
        problems: ProblemStore,
        required: Collection[str] = (),
    ) -> None:
        rows: tuple[tuple[str, str, ObjectRef, Any, Decode], ...] = (
            (mesh_config, "mesh", MESH, MeshConfig(), lambda plain: decode_mesh_config([plain])),
            (networks, "networks", NETWORKS, MeshNetworks(), decode_mesh_networks),
        )
        self._files = tuple(
            _MeshFile(path, key, subject, default, decode, batch, problems, path in required)
            for path, key, subject, default, decode in rows
            if path
        )
        self._retrying: asyncio.Task[None] | None = None

    def load_initial(self) -> None:
        for file in self._files:
            file.load(first=True)

    def retry(self) -> None:
        """Retry reading unreadable files."""
        for file in self._files:
            file.retry()

    async def start(self) -> None:
        """Start watching the files. Their folders need not exist yet."""
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
    """The file from which one row is read."""

    def __init__(
        self,
        path: str,
        key: str,
        subject: ObjectRef,
        default: Any,
        decode: Decode,
        batch: Batch,
        problems: ProblemStore,
        required: bool,
    ) -> None:
        self._required = required
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
        """Retry reading the file if it was unreadable."""
        if self._failed:
            self.load()

    def load(self, first: bool = False) -> None:
        """Read the file if it has changed."""
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
        """Report an unreadable file. Its last valid version, if any, stays in force."""
        self._failed = True
        code = "file-too-large" if isinstance(fault, TooLarge) else UNREADABLE
        reason = (isinstance(fault, OSError) and fault.strerror) or str(fault)
        if first and isinstance(fault, FileNotFoundError):
            reason += suggest_path(self._path)
        self._report(
            [Problem(code=code, message=reason if first else f"{reason}; the last valid version stays in force")]
        )
        self._put(None, first)

    def _put(self, value: Any, first: bool) -> None:
        """Set the row.

        If `value` is None, use the default if this is the first value, otherwise leave the row unchanged.
        """
        if value is None and first:
            value = self._default
        if value is not None:
            self._batch.put([(MESH_CONFIG, self._key, value)])

    def _open(self) -> bytes | None:
        """Return the content of the file, or None if there is no such file and none is required.

        Raise OSError if the file is unreadable, or TooLarge if it exceeds the size limit.
        """
        try:
            return read_file(self._path, LARGEST)[0]
        except (FileNotFoundError, NotADirectoryError):
            if self._required:
                raise
            return None
        except NoFile as fault:
            if self._required:
                raise IsADirectoryError(errno.EISDIR, "not a regular file") from fault
            return None

    def _read(self, data: bytes) -> tuple[Any, list[Problem]]:
        try:
            document = read_document(data, self._path)
        except SyntaxFault as fault:
            return None, [Problem(code="syntax-error", message=str(fault), line=fault.line)]
        except Exception as fault:  # an internal error or lack of memory: the last valid version stays in force
            _log.error("cannot read %s", printable_path(self._path), exc_info=True)
            return None, [Problem(code="internal-error", message=f"{type(fault).__name__}: {fault}")]
        value, problems = self._decode(document.plain)
        return value, [msgspec.structs.replace(p, line=document.line_of(p.path)) for p in problems]

    def _report(self, problems: Iterable[Problem]) -> None:
        placed = [msgspec.structs.replace(p, object=self._subject, file=printable_path(self._path)) for p in problems]
        self._problems.replace((self._path, ""), placed)

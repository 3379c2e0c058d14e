"""Reads configuration from a folder, and watches the folder. Only changed files are read again."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pilot.config.catalogue import CATALOGUE, Catalogue
from pilot.config.object import Object
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.ingest.batch import Batch
from pilot.ingest.decode import OWN, Decoded, DocumentOrigin, Row
from pilot.ingest.files import folder as folders
from pilot.ingest.files.chunk_parser import NOTHING, ChunkParser, Parsed
from pilot.ingest.files.chunks import Chunk
from pilot.ingest.files.documents import SyntaxFault
from pilot.ingest.files.file_decoder import FileDecoder
from pilot.ingest.files.file_io import LARGEST, NoFile, TooLarge, read_file
from pilot.ingest.files.folder import UNKNOWN
from pilot.ingest.files.last_good import LastGood
from pilot.ingest.files.watch import Watch
from pilot.ingest.ledger import SourceLedger
from pilot.ingest.namespace_filter import Edit
from pilot.lib.logging.log import scope
from pilot.lib.text import printable_path

_log = scope("config")
_MANY = 1_000
"""Number of simultaneous changes above which the whole folder is scanned.

This is faster, and the kernel may have dropped some notifications.
"""
_RETRY = 2.0
"""Seconds between attempts to read an unreadable file or folder."""
_LARGE = 64 << 10
"""Size in bytes from which a changed file is read apart from the others, which takes tens of milliseconds or longer."""


class _Reading(NamedTuple):
    """The result of reading a file: its documents, or the reason why it has none.

    `code` and `message` are those of a problem, or "". `line` is counted from 1, and is 0 if it is unknown.
    """

    signature: folders.Signature
    documents: list[Decoded]
    code: str = ""
    message: str = ""
    line: int = 0


class FileSource:
    """Reads the files of a folder into a batch. Call `load_initial` once, then `start`, and finally `stop`.

    After `start`, files are read and decoded in background threads: one reads the small files of one scan at a time,
    and another one large file at a time, so that small files do not wait for large ones. All edits of the small files
    of a scan are put into the batch together. Objects are removed only after the large files that have changed at the
    same time were read, because an object may have been moved to another file.

    Files larger than `limit` bytes are not read. `state` is the folder that stores the last valid objects of invalid
    files, so that they survive a restart. If `state` is "", they are not stored. `parser` parses large files; if it is
    None, the threads do.
    """

    def __init__(
        self,
        folder: str,
        batch: Batch,
        ledger: SourceLedger,
        origin: DocumentOrigin = OWN,
        catalogue: Catalogue = CATALOGUE,
        limit: int = LARGEST,
        state: str = "",
        parser: ChunkParser | None = None,
    ) -> None:
        self.folder = os.path.abspath(folder)
        self._batch, self._ledger, self._limit = batch, ledger, limit
        self._decoder, self._parser = FileDecoder(origin, catalogue), parser
        self._last_good = LastGood(state, self.folder, catalogue)
        self._restored: dict[str, dict[Row, ObjectRef]] = {}
        self._files: dict[str, folders.Signature] = {}
        self._folders: collections.Counter[str] = collections.Counter()
        self._unreadable_folders: set[str] = set()
        self._unreadable_files: set[str] = set()
        self._watch = Watch(self.folder, self._note, self._note_all)
        self._noted: set[str] = set()
        self._changes = asyncio.Event()
        self._large: dict[str, folders.Signature] | None = None  # changed large files, if they are read apart
        self._has_large = asyncio.Event()
        self._large_noted = self._large_read = 0
        self._removals: collections.deque[tuple[int, list[Edit]]] = collections.deque()
        self._tasks: list[asyncio.Task[None]] = []

    def load_initial(self) -> int:
        """Read all files into the batch, and return their number. Raise OSError if the folder cannot be opened."""
        os.scandir(self.folder).close()
        self.rescan()
        self._last_good.retain(self._files)
        return len(self._files)

    async def start(self) -> None:
        """Start watching the folder. Changes since `load_initial` are detected too."""
        self._large = {}
        self._tasks = [
            asyncio.create_task(self._process_changes(), name=f"read {self.folder}"),
            asyncio.create_task(self._process_large_files(self._large), name=f"read large files of {self.folder}"),
        ]
        await self._watch.start()

    async def stop(self) -> None:
        await self._watch.stop()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def rescan(self) -> None:
        """Scan the folder and read the changed files."""
        self._put(self._scan_folder(self.folder))

    def changed(self, paths: Iterable[str]) -> None:
        """Read the files at these paths, which may have been created, changed or deleted."""
        self._put(self._scan_paths(paths))

    def retry(self) -> None:
        """Retry reading unreadable files and folders."""
        self._put(self._scan_unreadable())

    # -- background tasks ----------------------------------------------------------------------------------------------

    def _note(self, paths: Iterable[str]) -> None:
        self._noted.update(paths)
        self._changes.set()

    def _note_all(self) -> None:
        self._note((self.folder,))

    async def _process_changes(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._changes.wait(), _RETRY if self._unreadable_files or self._unreadable_folders else None
                )
            self._changes.clear()
            await self._scan_noted()

    async def _scan_noted(self) -> None:
        """Read the changed files at the noted paths, or the unreadable ones again if there are none."""
        paths, self._noted = self._noted, set()
        async with self._ledger.turn:
            try:
                edits = (
                    await asyncio.to_thread(self._scan_paths, paths)
                    if paths
                    else await asyncio.to_thread(self._scan_unreadable)
                )
            except Exception:  # an internal error must not end the watch
                _log.error("cannot scan %s", printable_path(self.folder), exc_info=True)
                edits = []
            self._put(edits)

    async def _process_large_files(self, files: dict[str, folders.Signature]) -> None:
        while True:
            await self._has_large.wait()
            self._has_large.clear()
            while files:
                await self._process_large_file(files)

    async def _process_large_file(self, files: dict[str, folders.Signature]) -> None:
        """Read the first of these files. While the caller waits for the next one, nothing holds its objects."""
        async with self._ledger.turn:  # otherwise a scan may be adding a file
            path, signature = next(iter(files.items()))
            del files[path]
            before = self._files.get(path)
        try:
            reading = await asyncio.to_thread(self._read, path, signature, await self._parse(path))
            async with self._ledger.turn:
                self._end_large(await asyncio.to_thread(self._accept_late, path, reading, before))
        except Exception:  # an internal error must not end the watch
            _log.error("cannot read %s", printable_path(path), exc_info=True)
            self._end_large(())

    def _end_large(self, edits: Iterable[Edit]) -> None:
        """Put the edits of a large file that has been read."""
        self._large_read += 1
        self._put(edits)

    def _put(self, edits: Iterable[Edit]) -> None:
        """Put edits into the batch, except removals that wait for large files.

        Earlier removals whose large files have been read are put too, unless a file declares the objects by now.
        """
        changes = list(edits)
        if self._large:
            self._has_large.set()
        if self._large_read < self._large_noted:
            self._removals.append((self._large_noted, [edit for edit in changes if edit[2] is None]))
            changes = [edit for edit in changes if edit[2] is not None]
        while self._removals and self._removals[0][0] <= self._large_read:
            _, removals = self._removals.popleft()
            changes += [(table, key, None) for table, key, _ in removals if not self._ledger.is_declared(table, key)]
        self._batch.put(changes)

    async def _parse(self, path: str) -> Parsed:
        """Return the changed chunks of a large file, as far as worker processes have parsed them."""
        if self._parser is None:
            return NOTHING
        return await self._parser.parse(self.folder, await asyncio.to_thread(self._changed_chunks, path))

    def _changed_chunks(self, path: str) -> Sequence[Chunk]:
        try:
            data, _ = read_file(path, self._limit)
            return self._decoder.changed_chunks(path, data)
        except (OSError, TooLarge):
            return ()

    def _accept_late(self, path: str, reading: _Reading | None, before: folders.Signature | None) -> list[Edit]:
        """Accept a file that was read while the others were being scanned, unless it has been scanned again since.

        `before` is the signature of the file that was in force when the reading began.
        """
        if self._files.get(path) != before or folders.is_linked(path, self.folder):
            self._decoder.forget(path)
            return []
        return self._accept(path, reading if folders.sign(path) is not None else None)

    # -- scanning ------------------------------------------------------------------------------------------------------

    def _scan_paths(self, paths: Iterable[str]) -> list[Edit]:
        """Read the files and folders at these paths, and return the edits."""
        places = {
            place for path in paths if (place := folders.place_of(folders.valid_parent(path), self.folder)) is not None
        }
        if len(places) > _MANY or self.folder in places:
            return self._scan_folder(self.folder)
        edits: list[Edit] = []
        for place in sorted(places):
            if place in self._folders or os.path.isdir(place):
                edits += self._scan_folder(place)
            if folders.is_configuration(os.path.basename(place)):
                edits += self._scan_file(place)
        return edits

    def _scan_file(self, path: str) -> list[Edit]:
        if folders.is_linked(path, self.folder):
            return self._forget(path)
        return self._scan_changed(path, folders.sign(path) or UNKNOWN)

    def _scan_unreadable(self) -> list[Edit]:
        """Retry reading unreadable files and folders, and return the edits."""
        edits: list[Edit] = []
        for path in sorted(self._unreadable_files):
            edits += self._scan_file(path)
        for folder in sorted(self._unreadable_folders):
            edits += self._scan_folder(folder)
        return edits

    def _scan_folder(self, top: str) -> list[Edit]:
        """Read the changed files below a folder, and return the edits."""
        try:
            os.stat(self.folder)  # if the top folder is missing, keep its objects until it is back
        except OSError as fault:
            if self.folder not in self._unreadable_folders:
                _log.error("cannot scan %s: %s", printable_path(top), fault)
            return self._note_faults(self.folder, {self.folder: fault})
        faults: dict[str, OSError] = {}
        signatures = (
            {} if top != self.folder and folders.is_linked(top, self.folder) else dict(folders.scan(top, faults))
        )
        edits = self._note_faults(top, faults)
        unknown = tuple(folder + os.sep for folder in faults)
        prefix = top + os.sep
        gone = [
            path
            for path in self._files
            if path not in signatures and path.startswith(prefix) and not path.startswith(unknown)
        ]
        for path in gone:
            edits += self._forget(path)
        for path in sorted(signatures):
            if self._files.get(path) != signatures[path]:
                edits += self._scan_changed(path, signatures[path])
        return edits

    def _note_faults(self, top: str, faults: Mapping[str, OSError]) -> list[Edit]:
        """Report unreadable folders, and withdraw the reports of folders that are readable again. Return the edits."""
        edits: list[Edit] = []
        for folder in [
            f for f in self._unreadable_folders if f not in faults and (f == top or f.startswith(top + os.sep))
        ]:
            self._unreadable_folders.discard(folder)
            edits += self._ledger.remove(folder)
        for folder, fault in faults.items():
            self._unreadable_folders.add(folder)
            message = fault.strerror or str(fault)
            if any(self._ledger.objects(path) for path in self._files if path.startswith(folder + os.sep)):
                message += "; the last valid objects of its files stay in force"
            self._ledger.fail(folder, Problem(code="unreadable-folder", message=message, file=printable_path(folder)))
        return edits

    def _forget(self, path: str) -> list[Edit]:
        self._unreadable_files.discard(path)
        self._decoder.forget(path)
        self._last_good.forget(path)
        self._restored.pop(path, None)
        if self._files.pop(path, None) is not None:
            self._folders -= collections.Counter(self._parents(path))
        return self._ledger.remove(path)

    def _absent(self, path: str) -> list[Edit]:
        """Withdraw the objects of a path at which there is no file. Report a broken link, a pipe or a device."""
        edits = self._forget(path)
        if reason := folders.why_unusable(path):
            self._unreadable_files.add(path)  # the target of a link may appear without a notification
            message, file = f"{reason}; it is ignored", printable_path(path)
            self._ledger.fail(
                path, Problem(code="unreadable-file", message=message, severity=Severity.WARNING, file=file)
            )
        return edits

    def _remember(self, path: str, signature: folders.Signature) -> None:
        if path not in self._files:
            self._folders.update(self._parents(path))
        self._files[path] = signature

    def _parents(self, path: str) -> Iterator[str]:
        """Yield the folders that contain a file, except the top folder."""
        while (path := os.path.dirname(path)) != self.folder:
            yield path

    # -- reading -------------------------------------------------------------------------------------------------------

    def _scan_changed(self, path: str, signature: folders.Signature) -> list[Edit]:
        """Read a changed file and return its edits. If the file is large, note it to be read apart."""
        if self._large is not None and signature.size >= _LARGE:
            self._large_noted += path not in self._large
            self._large[path] = signature
            return []
        return self._accept(path, self._read(path, signature))

    def _read(self, path: str, signature: folders.Signature, parsed: Parsed = NOTHING) -> _Reading | None:
        """Read and decode a file. Return None if there is no file at this path.

        `parsed` contains chunks that have been parsed before.
        """
        try:
            data, signature = read_file(path, self._limit)
            documents = self._decoder.read(path, data, parsed)
        except (FileNotFoundError, NotADirectoryError, NoFile):
            return None
        except OSError as fault:
            return _Reading(UNKNOWN, [], "unreadable-file", fault.strerror or str(fault))
        except TooLarge as fault:
            return _Reading(signature, [], "file-too-large", str(fault))
        except SyntaxFault as fault:
            return _Reading(signature, [], "syntax-error", str(fault), fault.line)
        except Exception as fault:  # an internal error or lack of memory must not affect other files
            _log.error("cannot decode %s", printable_path(path), exc_info=True)
            return _Reading(signature, [], "internal-error", f"{type(fault).__name__}: {fault}")
        return _Reading(signature, documents)

    def _accept(self, path: str, reading: _Reading | None) -> list[Edit]:
        """Replace the objects of a file with those that were read, and return the edits.

        If the file cannot be read or parsed, its last valid objects stay in force.
        """
        self._unreadable_files.discard(path)
        if reading is None:
            return self._absent(path)
        signature, decoded, code, message, line = reading
        if code == "unreadable-file":  # it may become readable without a notification
            self._unreadable_files.add(path)
        if code:
            return self._failed(path, signature, code, message, line)
        _log.debug("read %s: %d documents", printable_path(path), len(decoded))
        refused = {row for part in decoded for row in part.refused}
        edits = self._restore(path) if refused else []
        self._remember(path, signature)
        old = self._old_versions(path, refused)
        # Stored before the problem is reported: the report promises that the objects survive a restart.
        self._keep(path, {row: o for row, o in self._ledger.objects(path).items() if row in refused} if refused else {})
        return edits + self._ledger.replace(path, [*decoded, Decoded(problems=old)])

    def _failed(self, path: str, signature: folders.Signature, code: str, message: str, line: int = 0) -> list[Edit]:
        edits = self._restore(path)
        self._remember(path, signature)
        if self._ledger.objects(path):
            message += "; its last valid objects stay in force"
        problem = Problem(code=code, message=message, file=printable_path(path), line=line)
        old = self._old_versions(path, self._restored.get(path, {}))
        self._keep(path, self._ledger.objects(path))
        self._ledger.fail(path, problem, *old)
        return edits

    # -- restarts ------------------------------------------------------------------------------------------------------

    def _restore(self, path: str) -> list[Edit]:
        """Restore the objects that a file had in force before the restart, if the file has not been read since.

        Return the edits.
        """
        entries = self._last_good.load(path) if path not in self._files else ()
        if not entries:
            return []
        self._restored[path] = {(entry.table, entry.key): entry.object.ref for entry in entries}
        return self._ledger.replace(path, [Decoded(entries)])

    def _old_versions(self, path: str, refused: Collection[Row]) -> tuple[Problem, ...]:
        """Return a warning for each object whose version from before the restart is in force."""
        refs = (ref for row, ref in self._restored.get(path, {}).items() if row in refused)
        message, file = "the version from before the restart is in force", printable_path(path)
        return tuple(
            Problem(code="old-version", object=ref, message=message, severity=Severity.WARNING, file=file)
            for ref in refs
        )

    def _keep(self, path: str, objects: Mapping[Row, Object[Any]]) -> None:
        if objects:
            self._last_good.keep(path, objects)
        else:
            self._last_good.forget(path)
            self._restored.pop(path, None)

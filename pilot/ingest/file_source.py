"""Configuration from a folder: every file below it, live. Only files that changed are read again."""
from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Iterator, Mapping

from pilot.ingest import folder as folders
from pilot.ingest.batch import Batch, Edit
from pilot.ingest.decode import OWN, Decoded, Origin, decode_document
from pilot.ingest.documents import Document, SyntaxFault, read_documents
from pilot.ingest.ledger import SourceLedger
from pilot.ingest.lines import Lines
from pilot.ingest.watch import Watch
from pilot.lib.log import scope
from pilot.model.catalogue import CATALOGUE, Catalogue
from pilot.model.problem import ObjectRef, Problem, Severity

_log = scope("config")
_MANY = 1_000
"""So many changes at once that looking at the whole folder is less work, and safer: the kernel may have dropped some."""


class FileSource:
    """Reads a folder into a batch. `load_initial` once, then `start`; `stop` ends the watching.

    `origin`: which cluster's objects the files hold, and which of them count.
    """

    def __init__(self, folder: str, batch: Batch, ledger: SourceLedger, origin: Origin = OWN, catalogue: Catalogue = CATALOGUE) -> None:
        self.folder = os.path.abspath(folder)
        self._batch, self._ledger, self._origin, self._catalogue = batch, ledger, origin, catalogue
        self._files: dict[str, folders.Signature] = {}
        self._folders: collections.Counter[str] = collections.Counter()
        self._unreadable: set[str] = set()
        self._watch = Watch(self.folder, self.changed, self.rescan)

    def load_initial(self) -> int:
        """Read everything into the batch; the number of files. OSError where there is no such folder."""
        os.scandir(self.folder).close()
        self.rescan()
        return len(self._files)

    async def start(self) -> None:
        """Follow the folder from now on; what happened since `load_initial` is seen too."""
        await self._watch.start()

    async def stop(self) -> None:
        await self._watch.stop()

    def rescan(self) -> None:
        """Look at every file, and read those that changed."""
        self._batch.put(self._look_through(self.folder))

    def _look_through(self, top: str) -> list[Edit]:
        """The edits of every file below a folder."""
        try:
            os.stat(self.folder)  # where the whole folder is gone, nothing was deleted: it will be back
        except OSError as fault:
            _log.error("cannot look through %s, what was read before stays: %s", top, fault)
            return []
        faults: dict[str, OSError] = {}
        found = {} if top != self.folder and folders.is_linked(top, self.folder) else dict(folders.scan(top, faults))
        edits = self._note_faults(top, faults)
        unknown = tuple(folder + os.sep for folder in faults)
        prefix = top + os.sep
        gone = [path for path in self._files if path not in found and path.startswith(prefix) and not path.startswith(unknown)]
        for path in gone:
            edits += self._forget(path)
        for path in sorted(found):
            if self._files.get(path) != found[path]:
                edits += self._read(path, found[path])
        return edits

    def _note_faults(self, top: str, faults: Mapping[str, OSError]) -> list[Edit]:
        """Tell of the folders that cannot be read, and of those no more that can be again."""
        edits: list[Edit] = []
        for folder in [f for f in self._unreadable if f not in faults and (f == top or f.startswith(top + os.sep))]:
            self._unreadable.discard(folder)
            edits += self._ledger.remove(folder)
        for folder, fault in faults.items():
            self._unreadable.add(folder)
            message = f"{fault.strerror or fault}; what its files declared before stays"
            self._ledger.fail(folder, Problem(code="unreadable-folder", message=message, file=folder))
        return edits

    def changed(self, paths: Iterable[str]) -> None:
        """Something happened at these paths, whatever it was."""
        places = {place for path in paths if (place := folders.place_of(path, self.folder)) is not None}
        if len(places) > _MANY or self.folder in places:
            self.rescan()
            return
        edits: list[Edit] = []
        for place in sorted(places):
            if place in self._folders or os.path.isdir(place):
                edits += self._look_through(place)
            elif not folders.is_configuration(os.path.basename(place)):
                continue
            elif not folders.is_linked(place, self.folder) and (signature := folders.sign(place)) is not None:
                edits += self._read(place, signature)
            else:
                edits += self._forget(place)
        self._batch.put(edits)

    def _forget(self, path: str) -> list[Edit]:
        if self._files.pop(path, None) is not None:
            self._folders -= collections.Counter(self._parents(path))
        return self._ledger.remove(path)

    def _remember(self, path: str, signature: folders.Signature) -> None:
        if path not in self._files:
            self._folders.update(self._parents(path))
        self._files[path] = signature

    def _parents(self, path: str) -> Iterator[str]:
        """The folders that a file is in, but the whole one."""
        while (path := os.path.dirname(path)) != self.folder:
            yield path

    def _read(self, path: str, signature: folders.Signature) -> list[Edit]:
        """Take the file as it is now. One that cannot be read or parsed leaves what it gave before."""
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return self._forget(path)
        except OSError as fault:
            return self._failed(path, signature, "unreadable-file", fault.strerror or str(fault), 0)
        try:
            documents = read_documents(data, path)
        except SyntaxFault as fault:
            return self._failed(path, signature, "syntax-error", str(fault), fault.line)
        try:
            decoded = [self._decode(data, path, i, d) for i, d in enumerate(documents)]
        except Exception as fault:  # a bug of ours: it must not keep the other files from being read
            _log.error("cannot decode %s", path, exc_info=True)
            return self._failed(path, signature, "internal-error", f"{type(fault).__name__}: {fault}", 0)
        self._remember(path, signature)
        _log.debug("read %s: %d documents", path, len(documents))
        return self._ledger.replace(path, decoded)

    def _failed(self, path: str, signature: folders.Signature, code: str, message: str, line: int) -> list[Edit]:
        self._remember(path, signature)
        self._ledger.fail(path, Problem(code=code, message=f"{message}; what the file declared before stays", file=path, line=line))
        return []

    def _decode(self, data: bytes, path: str, index: int, document: Document) -> Decoded:
        decoded = decode_document(document.plain, path, Lines(data, index, document.line), self._origin, self._catalogue)
        if document.repeated:
            subject = next((e.object.ref for e in decoded.entries), ObjectRef())
            decoded = decoded._replace(problems=(*decoded.problems, *_repeated(document, subject, path)))
        return decoded


def _repeated(document: Document, subject: ObjectRef, path: str) -> Iterable[Problem]:
    for key, line in document.repeated:
        message = f"{key!r} is there twice in one mapping: the last one counts"
        yield Problem(code="duplicate-key", object=subject, message=message, severity=Severity.WARNING, file=path, line=line)

"""Stores the last valid objects of invalid files, so that they survive a restart.

A file has an entry only while it is invalid, so nothing is written if all configuration is valid. Entries may contain
Secrets and are readable only by their owner.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pilot.config.catalogue import Catalogue
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.ingest.decode import Entry, Row
from pilot.ingest.files.file_io import write_file
from pilot.ingest.shape import encode_extension
from pilot.lib.duration import Duration
from pilot.lib.logging.log import scope

_log = scope("config")


class _StoredObject(msgspec.Struct):
    table: str
    key: tuple[str, ...]
    spec: msgspec.Raw
    labels: dict[str, str]
    annotations: dict[str, str]
    created: str


class _File(msgspec.Struct):
    objects: list[_StoredObject]


class LastGood:
    """The entries for one configuration folder, in the state folder `folder`. If that is "", nothing is stored."""

    def __init__(self, folder: str, source: str, catalogue: Catalogue) -> None:
        self._folder = os.path.join(folder, _digest(source)) if folder else ""
        self._catalogue = catalogue
        self._written: dict[str, bytes] = {}
        self._entries: set[str] = set()
        with contextlib.suppress(FileNotFoundError):
            self._entries.update(os.listdir(self._folder) if folder else ())

    def keep(self, path: str, objects: Mapping[Row, Object[Any]]) -> None:
        """Store the objects of an invalid file that are in force. Errors are only logged."""
        if not self._folder:
            return
        data = msgspec.json.encode(_File([_plain(table, key, o) for (table, key), o in objects.items()]))
        if self._written.get(path) == data:
            return
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            write_file(self._entry(path), data)
            self._written[path] = data
            self._entries.add(os.path.basename(self._entry(path)))
        except OSError as fault:
            _log.error("cannot write the last valid objects in %s: %s", self._folder, fault.strerror or fault)

    def forget(self, path: str) -> None:
        """Delete the entry of a file that has become valid or been deleted."""
        if not self._entries:
            return
        self._written.pop(path, None)
        self._drop(os.path.basename(self._entry(path)))

    def retain(self, paths: Iterable[str]) -> None:
        """Delete the entries of all files that are not in `paths`."""
        for name in self._entries - {os.path.basename(self._entry(path)) for path in paths if self._entries}:
            self._drop(name)

    def _drop(self, name: str) -> None:
        if name not in self._entries:
            return
        self._entries.discard(name)
        try:
            os.unlink(os.path.join(self._folder, name))
        except OSError as fault:
            _log.error("cannot delete the last valid objects in %s: %s", self._folder, fault.strerror or fault)

    def load(self, path: str) -> tuple[Entry, ...]:
        """Return the objects of a file that were in force before the restart. Objects of unknown kinds are omitted."""
        if not self._entries or os.path.basename(self._entry(path)) not in self._entries:
            return ()
        try:
            with open(self._entry(path), "rb") as file:
                stored = msgspec.json.decode(file.read(), type=_File)
            return tuple(entry for row in stored.objects if (entry := self._decode(row)) is not None)
        except (OSError, msgspec.MsgspecError, ValueError) as fault:
            _log.error("cannot read the last valid objects in %s: %s", self._folder, fault)
            return ()

    def _decode(self, stored: _StoredObject) -> Entry | None:
        kind = self._catalogue.find_by_table(stored.table)
        if kind is None:
            return None
        spec = msgspec.json.decode(stored.spec, type=kind.struct, dec_hook=_decode_extension)
        key = RegistryKey(*stored.key) if kind.per_cluster else ObjectKey(*stored.key)
        o: Object[Any] = Object(
            kind.id, key.namespace, key.name, spec, stored.labels, stored.annotations, stored.created
        )
        return Entry(stored.table, key, o)

    def _entry(self, path: str) -> str:
        return os.path.join(self._folder, f"{_digest(path)}.json")


def _digest(path: str) -> str:
    return hashlib.blake2b(os.fsencode(path), digest_size=16).hexdigest()


def _plain(table: str, key: tuple[str, ...], o: Object[Any]) -> _StoredObject:
    spec = msgspec.Raw(msgspec.json.encode(o.spec, enc_hook=encode_extension))
    return _StoredObject(table, tuple(key), spec, dict(o.labels), dict(o.annotations), o.created)


def _decode_extension(kind: type, value: Any) -> Any:
    """Return a duration from its nanoseconds."""
    if kind is Duration and isinstance(value, int):
        return Duration(value)
    raise ValueError(f"expected a {kind.__name__}, got {value!r}")

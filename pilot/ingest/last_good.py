"""The last good objects of files that are wrong now, kept in a folder over restarts.

A file gets an entry while what it declares is not all in force as written, and loses it when the file is right again, so a mesh
without mistakes writes nothing. Secrets are among the objects: the entries are readable by their owner alone.
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
from pilot.ingest.whole_file import write_whole
from pilot.lib.duration import Duration
from pilot.lib.log import scope

_log = scope("config")


class _Kept(msgspec.Struct):
    table: str
    key: tuple[str, ...]
    spec: msgspec.Raw
    labels: dict[str, str]
    annotations: dict[str, str]
    created: str


class _File(msgspec.Struct):
    objects: list[_Kept]


class LastGood:
    """The entries of one source of files in a state folder; without a folder ("") nothing is kept."""

    def __init__(self, folder: str, source: str, catalogue: Catalogue) -> None:
        self._folder = os.path.join(folder, _digest(source)) if folder else ""
        self._catalogue = catalogue
        self._written: dict[str, bytes] = {}
        self._entries: set[str] = set()
        with contextlib.suppress(FileNotFoundError):
            self._entries.update(os.listdir(self._folder) if folder else ())

    def keep(self, path: str, objects: Mapping[Row, Object[Any]]) -> None:
        """Writes what a file that is wrong now has in force. A folder that cannot be written is told, and stops nothing."""
        if not self._folder:
            return
        data = msgspec.json.encode(_File([_plain(table, key, o) for (table, key), o in objects.items()]))
        if self._written.get(path) == data:
            return
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            write_whole(self._entry(path), data)
            self._written[path] = data
            self._entries.add(os.path.basename(self._entry(path)))
        except OSError as fault:
            _log.error("cannot keep the last good objects in %s: %s", self._folder, fault.strerror or fault)

    def forget(self, path: str) -> None:
        """Takes away the entry of a file that is right, or gone."""
        if not self._entries:
            return
        self._written.pop(path, None)
        self._drop(os.path.basename(self._entry(path)))

    def retain(self, paths: Iterable[str]) -> None:
        """Takes away the entries of all files but these."""
        for name in self._entries - {os.path.basename(self._entry(path)) for path in paths if self._entries}:
            self._drop(name)

    def _drop(self, name: str) -> None:
        if name not in self._entries:
            return
        self._entries.discard(name)
        try:
            os.unlink(os.path.join(self._folder, name))
        except OSError as fault:
            _log.error("cannot take away the last good objects in %s: %s", self._folder, fault.strerror or fault)

    def load(self, path: str) -> tuple[Entry, ...]:
        """Returns the objects that a file had in force before the restart; those of kinds that are read no more are left out."""
        if not self._entries or os.path.basename(self._entry(path)) not in self._entries:
            return ()
        try:
            with open(self._entry(path), "rb") as file:
                found = msgspec.json.decode(file.read(), type=_File)
            return tuple(entry for kept in found.objects if (entry := self._decode(kept)) is not None)
        except (OSError, msgspec.MsgspecError, ValueError) as fault:
            _log.error("cannot read the last good objects in %s: %s", self._folder, fault)
            return ()

    def _decode(self, kept: _Kept) -> Entry | None:
        kind = self._catalogue.find_by_table(kept.table)
        if kind is None:
            return None
        spec = msgspec.json.decode(kept.spec, type=kind.struct, dec_hook=_decode_extension)
        key = RegistryKey(*kept.key) if kind.per_cluster else ObjectKey(*kept.key)
        o: Object[Any] = Object(kind.id, key.namespace, key.name, spec, kept.labels, kept.annotations, kept.created)
        return Entry(kept.table, key, o)

    def _entry(self, path: str) -> str:
        return os.path.join(self._folder, f"{_digest(path)}.json")


def _digest(path: str) -> str:
    return hashlib.blake2b(os.fsencode(path), digest_size=16).hexdigest()


def _plain(table: str, key: tuple[str, ...], o: Object[Any]) -> _Kept:
    spec = msgspec.Raw(msgspec.json.encode(o.spec, enc_hook=_encode_extension))
    return _Kept(table, tuple(key), spec, dict(o.labels), dict(o.annotations), o.created)


def _encode_extension(value: Any) -> Any:
    """Returns a duration as nanoseconds."""
    if isinstance(value, Duration):
        return int(value)
    raise NotImplementedError(type(value))


def _decode_extension(kind: type, value: Any) -> Any:
    """Returns a duration from its nanoseconds."""
    if kind is Duration and isinstance(value, int):
        return Duration(value)
    raise ValueError(f"expected a {kind.__name__}, got {value!r}")

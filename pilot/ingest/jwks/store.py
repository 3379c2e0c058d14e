"""Stores the most recently fetched key sets in a folder, so that they survive a restart."""

from __future__ import annotations

import contextlib
import hashlib
import os

import msgspec

from pilot.config.security.request_authentication import JwksKey
from pilot.ingest.files.file_io import write_file
from pilot.lib.logging.log import scope
from pilot.lib.tokens.envoy_jwks import has_keys

_log = scope("jwks")
FOLDER = "jwks"


class KeptKeys(msgspec.Struct, frozen=True):
    """A fetched key set. `fetched` is the time of the fetch in Unix seconds."""

    issuer: str
    uri: str
    keys: str
    fetched: float

    @property
    def key(self) -> JwksKey:
        return JwksKey(self.issuer, self.uri)


class KeyStore:
    """Stores each key set in a file below a state folder. If that is "", nothing is stored. Errors are only logged."""

    def __init__(self, state_folder: str) -> None:
        self._folder = os.path.join(state_folder, FOLDER) if state_folder else ""

    def load(self) -> dict[JwksKey, KeptKeys]:
        """Return all stored key sets."""
        key_sets: dict[JwksKey, KeptKeys] = {}
        names: list[str] = []
        if self._folder:
            with contextlib.suppress(FileNotFoundError):
                names = sorted(name for name in os.listdir(self._folder) if name.endswith(".json"))
        for name in names:
            try:
                with open(os.path.join(self._folder, name), "rb") as file:
                    stored = msgspec.json.decode(file.read(), type=KeptKeys)
                if has_keys(stored.keys):
                    key_sets[stored.key] = stored
            except (OSError, msgspec.MsgspecError, ValueError) as fault:
                _log.error("cannot read the key set %s in %s: %s", name, self._folder, fault)
        return key_sets

    def keep(self, stored: KeptKeys) -> None:
        """Write a key set."""
        if not self._folder:
            return
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            write_file(self._path(stored.key), msgspec.json.encode(stored))
        except OSError as fault:
            _log.error("cannot write a key set in %s: %s", self._folder, fault.strerror or fault)

    def drop(self, key: JwksKey) -> None:
        """Delete a key set."""
        if self._folder:
            with contextlib.suppress(OSError):
                os.unlink(self._path(key))

    def _path(self, key: JwksKey) -> str:
        digest = hashlib.blake2b("\0".join(key).encode(), digest_size=16).hexdigest()
        return os.path.join(self._folder, f"{digest}.json")

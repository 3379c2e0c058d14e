"""Keeps the last good key sets in a folder over restarts."""

from __future__ import annotations

import contextlib
import hashlib
import os

import msgspec

from pilot.config.security.request_authentication import JwksKey
from pilot.ingest.whole_file import write_whole
from pilot.lib.envoy_jwks import has_keys
from pilot.lib.log import scope

_log = scope("jwks")
FOLDER = "jwks"


class KeptKeys(msgspec.Struct, frozen=True):
    """A key set as it was fetched; `fetched`: Unix seconds."""

    issuer: str
    uri: str
    keys: str
    fetched: float

    @property
    def key(self) -> JwksKey:
        return JwksKey(self.issuer, self.uri)


class KeyStore:
    """A file for each key set below a state folder; without a folder ("") nothing is kept. What cannot be read or written is logged, and
    stops nothing."""

    def __init__(self, state_folder: str) -> None:
        self._folder = os.path.join(state_folder, FOLDER) if state_folder else ""

    def load(self) -> dict[JwksKey, KeptKeys]:
        """Returns all key sets."""
        found: dict[JwksKey, KeptKeys] = {}
        names: list[str] = []
        if self._folder:
            with contextlib.suppress(FileNotFoundError):
                names = sorted(name for name in os.listdir(self._folder) if name.endswith(".json"))
        for name in names:
            try:
                with open(os.path.join(self._folder, name), "rb") as file:
                    kept = msgspec.json.decode(file.read(), type=KeptKeys)
                if has_keys(kept.keys):
                    found[kept.key] = kept
            except (OSError, msgspec.MsgspecError, ValueError) as fault:
                _log.error("cannot read the key set %s in %s: %s", name, self._folder, fault)
        return found

    def keep(self, kept: KeptKeys) -> None:
        """Writes a key set."""
        if not self._folder:
            return
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            write_whole(self._path(kept.key), msgspec.json.encode(kept))
        except OSError as fault:
            _log.error("cannot keep a key set in %s: %s", self._folder, fault.strerror or fault)

    def drop(self, key: JwksKey) -> None:
        """Takes a key set away."""
        if self._folder:
            with contextlib.suppress(OSError):
                os.unlink(self._path(key))

    def _path(self, key: JwksKey) -> str:
        digest = hashlib.blake2b("\0".join(key).encode(), digest_size=16).hexdigest()
        return os.path.join(self._folder, f"{digest}.json")

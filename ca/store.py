"""Stores for a self-signed root without Kubernetes: a folder, which persists across restarts, or memory."""

from __future__ import annotations

import os
import pathlib
import tempfile

from ca.errors import KeyMaterialError
from ca.pem import certificate_pem, key_pem, load_bundle, load_key
from ca.signer import Signer
from ca.verify import check_signer

CERTIFICATE, KEY = "ca-cert.pem", "ca-key.pem"


class FolderStore:
    """Stores one self-signed signer as ca-cert.pem and ca-key.pem. Only the owner can read the key file."""

    def __init__(self, folder: str) -> None:
        if not folder:  # it would be the working directory
            raise ValueError("a folder for the root certificate is required")
        self._folder = pathlib.Path(folder)

    def load(self) -> Signer | None:
        """Return the stored signer, or None if there is none.

        Raise KeyMaterialError if the files are invalid or incomplete. They must not be replaced with a new root,
        because proxies that trust the old root would reject it.
        """
        paths = [self._folder / KEY, self._folder / CERTIFICATE]
        try:
            present = [path.is_file() for path in paths]
            if not any(present):
                return None
            if not all(present):
                raise KeyMaterialError(f"{self._folder}: either {KEY} or {CERTIFICATE} is missing")
            key, certificate = (path.read_bytes() for path in paths)
        except OSError as error:
            raise KeyMaterialError(f"{self._folder}: {error.strerror or error}") from error
        root = load_bundle(certificate, str(paths[1]))[0]
        signer = Signer(root, load_key(key, str(paths[0])), (), (root,))
        check_signer(signer, str(self._folder))
        return signer

    def save(self, signer: Signer) -> None:
        """Replace the stored signer. Raise KeyMaterialError if the folder is not writable.

        The key is written first. It stays the same when a root is renewed, so the two files match even after a crash in
        between.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(KEY, key_pem(signer.key), 0o600)
            self._write(CERTIFICATE, certificate_pem(signer.certificate), 0o644)
        except FileExistsError as error:
            raise KeyMaterialError(f"{self._folder}: a file, not a folder") from error
        except OSError as error:
            raise KeyMaterialError(f"{self._folder}: {error.strerror or error}") from error

    def _write(self, name: str, data: bytes, mode: int) -> None:
        number, path = tempfile.mkstemp(dir=self._folder, prefix=f".{name}.")
        try:
            with os.fdopen(number, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(path, self._folder / name)
        except BaseException:
            os.unlink(path)
            raise


class MemoryStore:
    """Stores a signer for the lifetime of the process."""

    def __init__(self) -> None:
        self._signer: Signer | None = None

    def load(self) -> Signer | None:
        """Return the stored signer, or None if there is none."""
        return self._signer

    def save(self, signer: Signer) -> None:
        """Store a signer."""
        self._signer = signer

"""Secrets in files: the workload's mounted certificate, and the files that configuration refers to."""

from __future__ import annotations

import asyncio
import os
import pathlib
from typing import NamedTuple

from pilot.agent.certificates.secret_cache import (
    ROOTS,
    WORKLOAD,
    SecretCache,
    build_certificate_secret,
    build_root_secret,
)
from pilot.lib.logging.log import scope
from pilot.lib.pem_files import PemFile, check_pair

CHAIN, KEY, ROOT = "./etc/certs/cert-chain.pem", "./etc/certs/key.pem", "./etc/certs/root-cert.pem"
CERTIFICATE_PREFIX, ROOT_PREFIX = "file-cert:", "file-root:"
SYSTEM_ROOT = "file-root:system"
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
POLL_SECONDS = 1.0
"""Interval in seconds between checks for changed files. Kubernetes updates mounted files only about once a minute."""
_log = scope("secretcache")


class SecretFileSource(NamedTuple):
    """The files of a secret: either root certificates, or a certificate chain and its key."""

    chain: str = ""
    key: str = ""
    roots: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path in self if path)


def parse_secret_name(name: str) -> SecretFileSource | None:
    """Return the files that a secret name refers to, or None if it refers to none.

    The names of secrets in files are file-cert:CHAIN~KEY and file-root:ROOTS.
    """
    if name == SYSTEM_ROOT:
        return SecretFileSource(
            roots=next((path for path in SYSTEM_BUNDLES if pathlib.Path(path).exists()), SYSTEM_BUNDLES[0])
        )
    if name.startswith(ROOT_PREFIX):
        return SecretFileSource(roots=name.removeprefix(ROOT_PREFIX))
    chain, tilde, key = name.removeprefix(CERTIFICATE_PREFIX).partition("~")
    return SecretFileSource(chain, key) if name.startswith(CERTIFICATE_PREFIX) and tilde else None


class SecretFileWatcher:
    """Loads secrets from files and reloads them when the files change.

    If files are unreadable or inconsistent, the last valid secret stays in use.
    """

    def __init__(self, secrets: SecretCache) -> None:
        self._secrets, self._sources, self._states = secrets, dict[str, SecretFileSource](), dict[str, object]()

    def watch_mounted(self) -> None:
        """Serve the certificate in ./etc/certs as the workload's own."""
        self._add(WORKLOAD, SecretFileSource(CHAIN, KEY))
        self._add(ROOTS, SecretFileSource(roots=ROOT))

    def watch(self, name: str) -> None:
        """Start watching the files that the name of a secret refers to. Do nothing if it refers to none."""
        if name not in self._sources and (source := parse_secret_name(name)) is not None:
            self._add(name, source)

    async def run(self) -> None:
        """Poll the files until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.poll()

    def poll(self) -> None:
        """Reload the files that changed."""
        for name, source in self._sources.items():
            self._load_if_changed(name, source)

    def _add(self, name: str, source: SecretFileSource) -> None:
        self._sources[name] = source
        self._load_if_changed(name, source)

    def _load_if_changed(self, name: str, source: SecretFileSource) -> None:
        try:
            state = [(status.st_mtime_ns, status.st_size, status.st_ino) for status in map(os.stat, source.paths)]
        except OSError as error:
            state = [error.errno, error.filename]  # type: ignore[list-item]
        if self._states.get(name) == state:
            return
        self._states[name] = state
        try:
            self._load(name, source)
        except (OSError, ValueError) as error:
            _log.warning("secret %s was not updated: %s", name, error)

    def _load(self, name: str, source: SecretFileSource) -> None:
        if source.roots:
            self._secrets.put(build_root_secret(name, pathlib.Path(source.roots).read_bytes()))
            return
        chain, key = pathlib.Path(source.chain).read_bytes(), pathlib.Path(source.key).read_bytes()
        # The files may differ while they are being replaced one by one.
        check_pair(PemFile(source.chain, chain), PemFile(source.key, key))
        self._secrets.put(build_certificate_secret(name, chain, key))

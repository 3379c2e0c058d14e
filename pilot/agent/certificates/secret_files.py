"""Certificates in files, served as secrets and followed: those mounted for the workload, and those that configuration names."""

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
from pilot.agent.certificates.workload_certificate import load_certificate
from pilot.lib.log import scope

CHAIN, KEY, ROOT = "./etc/certs/cert-chain.pem", "./etc/certs/key.pem", "./etc/certs/root-cert.pem"
PAIR_PREFIX, ROOT_PREFIX = "file-cert:", "file-root:"
SYSTEM_ROOT = "file-root:system"
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
SECONDS = 1.0
"""Time between looks at the files; Kubernetes replaces mounted files within a minute."""
_log = scope("secretcache")


class SecretFileSource(NamedTuple):
    """The files of a secret: the roots, or a chain and its key."""

    chain: str = ""
    key: str = ""
    roots: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path in self if path)


def parse_secret_name(name: str) -> SecretFileSource | None:
    """Returns the files that the name of a secret says: file-cert:CHAIN~KEY, file-root:ROOTS; None for any other name."""
    if name == SYSTEM_ROOT:
        return SecretFileSource(
            roots=next((path for path in SYSTEM_BUNDLES if pathlib.Path(path).exists()), SYSTEM_BUNDLES[0])
        )
    if name.startswith(ROOT_PREFIX):
        return SecretFileSource(roots=name.removeprefix(ROOT_PREFIX))
    chain, tilde, key = name.removeprefix(PAIR_PREFIX).partition("~")
    return SecretFileSource(chain, key) if name.startswith(PAIR_PREFIX) and tilde else None


class SecretFileWatcher:
    """Reads files into secrets, and again when they change. What cannot be read, or is half replaced, leaves the secret as it was."""

    def __init__(self, secrets: SecretCache) -> None:
        self._secrets, self._sources, self._seen = secrets, dict[str, SecretFileSource](), dict[str, object]()

    def add_mounted(self) -> None:
        """Serves the certificate below ./etc/certs as the workload's own."""
        self._add(WORKLOAD, SecretFileSource(CHAIN, KEY))
        self._add(ROOTS, SecretFileSource(roots=ROOT))

    def wanted(self, name: str) -> None:
        """Takes the name of a secret that Envoy asks for; those that name files are read from now on."""
        if name not in self._sources and (source := parse_secret_name(name)) is not None:
            self._add(name, source)

    async def follow(self) -> None:
        """Looks at the files until it is cancelled."""
        while True:
            await asyncio.sleep(SECONDS)
            self.look()

    def look(self) -> None:
        """Reads the files that changed."""
        for name, source in self._sources.items():
            self._read(name, source)

    def _add(self, name: str, source: SecretFileSource) -> None:
        self._sources[name] = source
        self._read(name, source)

    def _read(self, name: str, source: SecretFileSource) -> None:
        try:
            state = [(found.st_mtime_ns, found.st_size, found.st_ino) for found in map(os.stat, source.paths)]
        except OSError as error:
            state = [error.errno, error.filename]  # type: ignore[list-item]
        if self._seen.get(name) == state:
            return
        self._seen[name] = state
        try:
            self._put(name, source)
        except (OSError, ValueError) as error:
            _log.warning("the secret %s is left as it was: %s", name, error)

    def _put(self, name: str, source: SecretFileSource) -> None:
        if source.roots:
            self._secrets.put(build_root_secret(name, pathlib.Path(source.roots).read_bytes()))
            return
        chain, key = pathlib.Path(source.chain).read_bytes(), pathlib.Path(source.key).read_bytes()
        load_certificate(chain, key, chain)  # files that are replaced one by one do not fit together for a moment
        self._secrets.put(build_certificate_secret(name, chain, key))

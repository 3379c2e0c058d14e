"""A module cache with a registry, for every test in this folder."""

from __future__ import annotations

import collections
import pathlib
import ssl
from collections.abc import Iterator

import pytest

from pilot.agent.wasm.http_fetcher import FetchError, HttpFetcher
from pilot.agent.wasm.module_cache import ModuleCache, ModuleSource
from pilot.lib.address_rules import AddressRules
from testing.mesh.wasm_module import module
from testing.servers.image_registry import Registry

FIRST, SECOND = module("one"), module("two")
LARGEST = 20_000


class Counts:
    """Counts module events."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()

    def module_looked_up(self, hit: bool) -> None:
        self.counts["hit" if hit else "miss"] += 1

    def module_fetched(self, result: str) -> None:
        self.counts[result] += 1

    def modules_cached(self, count: int) -> None:
        self.counts["kept"] = count

    def extension_converted(self, result: str) -> None:
        self.counts[f"converted {result}"] += 1


class Modules:
    """A module cache and its registry. `now` is a manual clock; `sleeps` records the waits."""

    def __init__(
        self,
        folder: pathlib.Path,
        registry: Registry,
        allowed: str = "127.0.0.0/8",
        insecure: bool = True,
        seconds: float = 15,
    ) -> None:
        self.registry, self.counts, self.now, self.sleeps = registry, Counts(), 0.0, list[float]()
        context = ssl.create_default_context()
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        fetcher = HttpFetcher(AddressRules((allowed,) if allowed else ()), context, unverified, LARGEST)
        hosts = frozenset((registry.host,)) if insecure else frozenset[str]()
        self.files = ModuleCache(
            folder,
            fetcher,
            self.counts,
            hosts,
            2,
            lambda: self.now,
            self.sleeps.append,
            folder / "config.json",
            request_seconds=seconds,
        )

    def get(
        self, url: str, resource: str = "r", version: str = "1", checksum: str = "", policy: str = "", secret: str = ""
    ) -> bytes:
        source = ModuleSource(url.replace("HOST", self.registry.host), resource, version, checksum, policy, secret)
        return self.files.fetch(source, 20).read_bytes()

    def fails(self, url: str, **more: str) -> str:
        with pytest.raises(FetchError) as error:
            self.get(url, **more)
        return str(error.value)


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    yield server
    server.stop()


@pytest.fixture
def modules(tmp_path: pathlib.Path, registry: Registry) -> Modules:
    return Modules(tmp_path, registry)

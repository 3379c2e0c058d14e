"""Keeps fetched modules as files, so that Envoy can load them, and fetches what is not there.

What a tag or URL means is remembered; when it is looked up again decides the pull policy. A file that nobody asked for in a day is removed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import pathlib
import ssl
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from pilot.agent.agent_settings import ModuleSettings
from pilot.agent.wasm.docker_credentials import Login, find_login
from pilot.agent.wasm.http_fetcher import FetchError, HttpFetcher
from pilot.agent.wasm.image_layers import MAGIC, find_module
from pilot.agent.wasm.image_registry import RegistryClient, parse_image
from pilot.lib.address_rules import AddressRules
from pilot.lib.log import scope

_log = scope("wasm")
ALWAYS, IF_NOT_PRESENT = "Always", "IfNotPresent"
_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class CacheObserver(Protocol):
    """What is counted."""

    def module_looked_up(self, hit: bool) -> None: ...
    def module_fetched(self, result: str) -> None: ...
    def modules_kept(self, count: int) -> None: ...


class ModuleSource(NamedTuple):
    """Says where a module comes from: `resource` is the configuration that asks for it and `version` the version of that; `checksum` is of the
    module over HTTP, of the image's manifest from a registry, "" for any; `pull_secret` is as a Secret holds it, "" for none."""

    url: str
    resource: str
    version: str = ""
    checksum: str = ""
    policy: str = ""
    pull_secret: str = ""

    @property
    def keeps(self) -> bool:
        """Returns whether what the URL meant once is good enough, whatever the version of the configuration."""
        if self.policy in (ALWAYS, IF_NOT_PRESENT):
            return self.policy == IF_NOT_PRESENT
        return not (self.url.startswith("oci://") and parse_image(self.url.removeprefix("oci://")).wanted == "latest")


class ModuleCache:
    """The modules of a folder. Methods may be called from any thread. `insecure`: hosts of registries and servers that are not verified, `*` for
    all; `tries`: how often a fetch that failed for the time being is tried again; `logins`: a configuration of Docker's, for images without a pull
    secret, which is read whenever one is fetched."""

    def __init__(
        self,
        folder: pathlib.Path,
        fetcher: HttpFetcher,
        observer: CacheObserver,
        insecure: frozenset[str] = frozenset(),
        tries: int = 5,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        logins: pathlib.Path | None = None,
    ) -> None:
        self._folder, self._fetcher, self._observer, self._insecure, self._tries = (
            folder,
            fetcher,
            observer,
            insecure,
            tries,
        )
        self._logins = logins
        self._clock, self._sleep, self._lock = clock, sleep, threading.Lock()
        self._used: dict[pathlib.Path, float] = {}
        self._meant: dict[str, str] = {}
        self._seen: dict[tuple[str, str], str] = {}

    def get(self, source: ModuleSource, seconds: float) -> pathlib.Path:
        """Returns the file of a module, which is fetched within a time where it is not there. FetchError where it cannot be had."""
        try:
            found = self._find(source)
            self._observer.module_looked_up(found is not None)
            return found if found is not None else self._fetch(source, self._fetcher.deadline(seconds))
        except ValueError as error:
            raise FetchError(str(error)) from error
        except FetchError as error:
            self._observer.module_fetched(error.result)
            raise

    def purge(self, older: float) -> None:
        """Removes the files that nobody asked for in that many seconds."""
        with self._lock:
            for path in [path for path, used in self._used.items() if self._clock() - used > older]:
                path.unlink(missing_ok=True)
                del self._used[path]
            gone = [url for url, digest in self._meant.items() if self._path(url, digest) not in self._used]
            for url in gone:
                del self._meant[url]
            self._seen = {key: version for key, version in self._seen.items() if key[0] in self._meant}
            self._observer.modules_kept(len(self._used))

    def _find(self, source: ModuleSource) -> pathlib.Path | None:
        """Returns the file that is there already and may be used."""
        with self._lock:
            digest = source.checksum or _digest_in(source.url)
            if not digest:
                key = (source.url, source.resource)
                if source.keeps or self._seen.get(key) == source.version:
                    digest = self._meant.get(source.url, "")
            path = self._path(source.url, digest)
            if not digest or path not in self._used or not path.exists():
                return None
            self._used[path] = self._clock()
            return path

    def _fetch(self, source: ModuleSource, deadline: float) -> pathlib.Path:
        pause = _PAUSE
        for attempt in range(self._tries + 1):
            try:
                module, digest = self._download(source, deadline)
                break
            except FetchError as error:
                if not error.passing or attempt == self._tries or self._fetcher.left(deadline) <= pause:
                    raise
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        if not module.startswith(MAGIC):
            raise FetchError(f"what is at {source.url} is no Wasm module", "fetch_failure")
        path = self._write(source, digest, module)
        self._observer.module_fetched("success")
        return path

    def _download(self, source: ModuleSource, deadline: float) -> tuple[bytes, str]:
        """Returns a module and its checksum."""
        parts = urlsplit(source.url)
        insecure = bool(self._insecure & {"*", parts.netloc})
        if parts.scheme in ("http", "https"):
            answer = self._fetcher.get(source.url, deadline, insecure=insecure)
            if answer.status != 200:
                raise FetchError(
                    f"{parts.netloc} answers {answer.status} to the request for a module", passing=answer.status >= 500
                )
            digests = frozenset((hashlib.sha256(answer.body).hexdigest(),))
            return answer.body, _checked(source, digests)
        if parts.scheme != "oci":
            raise FetchError(f"{parts.scheme!r} is no scheme that modules are fetched by")
        image = parse_image(source.url.removeprefix("oci://"))
        login = (
            find_login(source.pull_secret, image.registry) if source.pull_secret else self._own_login(image.registry)
        )
        registry = RegistryClient(self._fetcher, image, login, deadline, insecure)
        manifest, named = registry.manifest()
        digest = _checked(source, frozenset(name.removeprefix("sha256:") for name in named))
        return find_module(manifest, registry.blob, self._fetcher.largest), digest

    def _own_login(self, registry: str) -> Login | None:
        """Returns the login for a registry that the machine has, if any; a file that cannot be read has none."""
        try:
            return find_login(self._logins.read_text(), registry) if self._logins is not None else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("the logins in %s cannot be read: %s", self._logins, error)
            return None

    def _write(self, source: ModuleSource, digest: str, module: bytes) -> pathlib.Path:
        path = self._path(source.url, digest)
        with self._lock:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(".new")
            fresh.write_bytes(module)
            os.replace(fresh, path)
            self._used[path] = self._clock()
            if not _digest_in(source.url):
                self._meant[source.url] = digest
                self._seen[source.url, source.resource] = source.version
            self._observer.modules_kept(len(self._used))
        return path

    def _path(self, url: str, digest: str) -> pathlib.Path:
        """Returns the file of a module: a folder for each image or URL, in it a file for each checksum."""
        name = parse_image(url.removeprefix("oci://")).name if url.startswith("oci://") else url
        return self._folder / hashlib.sha256(name.encode()).hexdigest() / f"{digest}.wasm"


def _digest_in(url: str) -> str:
    """Returns the checksum that the reference of an image has in it, "" where it has none."""
    return parse_image(url.removeprefix("oci://")).digest.removeprefix("sha256:") if url.startswith("oci://") else ""


def _checked(source: ModuleSource, digests: frozenset[str]) -> str:
    """Returns the checksum of what came, the one that was asked for where one was. FetchError where it is another one."""
    wanted = source.checksum or _digest_in(source.url)
    if wanted and wanted not in digests:
        raise FetchError(f"what is at {source.url} has another checksum than {wanted}", "checksum_mismatch")
    return wanted or min(digests)


FOLDER = "wasm"


def build_module_cache(settings: ModuleSettings, config_path: str, observer: CacheObserver) -> ModuleCache:
    """Returns the modules of a proxy, in a folder below that of its configuration. ValueError, a sentence for the user, where a setting cannot be
    right."""
    try:
        rules = AddressRules(settings.allowed, settings.blocked)
    except ValueError as error:
        raise ValueError(f"ALLOWED_CIDRS_IN_WASM_FETCH, BLOCKED_CIDRS_IN_WASM_FETCH: {error}") from error
    tls = ssl.create_default_context()
    try:
        if settings.extra_roots:
            tls.load_verify_locations(cafile=settings.extra_roots)
    except OSError as error:
        raise ValueError(f"WASM_EXTRA_ROOTS: {settings.extra_roots}: {error}") from error
    fetcher = HttpFetcher(rules, tls, _unverified(), settings.largest)
    logins = pathlib.Path(settings.logins or os.path.expanduser("~/.docker")) / "config.json"
    return ModuleCache(
        pathlib.Path(config_path) / FOLDER,
        fetcher,
        observer,
        frozenset(settings.insecure),
        settings.retries,
        logins=logins,
    )


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def purge_forever(modules: ModuleCache, settings: ModuleSettings) -> None:
    """Removes modules that nothing refers to, again and again."""
    while True:
        await asyncio.sleep(settings.purge.seconds)
        modules.purge(settings.life.seconds)

"""A cache of Wasm modules in files, from which Envoy loads them.

The cache stores which module each tag and URL referred to. The pull policy decides when a tag or URL is resolved again.
Unused modules are removed.
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
from pilot.lib.logging.log import scope

DIRECTORY = "wasm"
ALWAYS, IF_NOT_PRESENT = "Always", "IfNotPresent"
_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.1, 5.0
_log = scope("wasm")


class CacheObserver(Protocol):
    """Receives the events that metrics count."""

    def module_looked_up(self, hit: bool) -> None: ...
    def module_fetched(self, result: str) -> None: ...
    def modules_cached(self, count: int) -> None: ...


class ModuleSource(NamedTuple):
    """The source of a module.

    `resource` and `version` identify the configuration that refers to the module. `checksum` is the SHA-256 of the
    module for HTTP, or of the image's manifest for a registry. If it is "", any module is accepted. `pull_secret` is
    the content of the pull secret, or "" if there is none.
    """

    url: str
    resource: str
    version: str = ""
    checksum: str = ""
    policy: str = ""
    pull_secret: str = ""

    @property
    def reuses_url(self) -> bool:
        """Return whether a module that was already fetched from the URL may be used without resolving the URL again."""
        if self.policy in (ALWAYS, IF_NOT_PRESENT):
            return self.policy == IF_NOT_PRESENT
        return not (
            self.url.startswith("oci://") and parse_image(self.url.removeprefix("oci://")).digest_or_tag == "latest"
        )


class ModuleCache:
    """The modules in a directory. Thread-safe.

    `insecure_hosts` are the registries and servers whose certificates are not verified, or `*` for all. `docker_config`
    is the Docker configuration for images without a pull secret. It is read for each fetch. `request_seconds` limits
    each attempt to fetch a module from a web server.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        fetcher: HttpFetcher,
        observer: CacheObserver,
        insecure_hosts: frozenset[str] = frozenset(),
        max_retries: int = 5,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        docker_config: pathlib.Path | None = None,
        request_seconds: float = 15.0,
    ) -> None:
        self._directory, self._fetcher, self._observer = directory, fetcher, observer
        self._insecure_hosts, self._max_retries, self._docker_config = insecure_hosts, max_retries, docker_config
        self._request_seconds = request_seconds
        self._clock, self._sleep, self._lock = clock, sleep, threading.Lock()
        self._last_used: dict[pathlib.Path, float] = {}
        self._digests: dict[str, str] = {}
        self._versions: dict[tuple[str, str], str] = {}

    def fetch(self, source: ModuleSource, timeout: float) -> pathlib.Path:
        """Return the file of a module. Download the module if it is not cached. Raises FetchError."""
        try:
            path = self._find(source)
            self._observer.module_looked_up(path is not None)
            return path if path is not None else self._fetch(source, self._fetcher.deadline(timeout))
        except ValueError as error:
            raise FetchError(str(error)) from error
        except FetchError as error:
            self._observer.module_fetched(error.result)
            raise

    def purge(self, max_age: float) -> None:
        """Remove modules that have not been used for `max_age` seconds."""
        with self._lock:
            for path in [path for path, used in self._last_used.items() if self._clock() - used > max_age]:
                path.unlink(missing_ok=True)
                del self._last_used[path]
            purged = [url for url, digest in self._digests.items() if self._path(url, digest) not in self._last_used]
            for url in purged:
                del self._digests[url]
            self._versions = {key: version for key, version in self._versions.items() if key[0] in self._digests}
            self._observer.modules_cached(len(self._last_used))

    def _find(self, source: ModuleSource) -> pathlib.Path | None:
        """Return the cached file if the pull policy allows its use, or None if there is none."""
        with self._lock:
            digest = source.checksum or _digest_in(source.url)
            if not digest:
                key = (source.url, source.resource)
                if source.reuses_url or self._versions.get(key) == source.version:
                    digest = self._digests.get(source.url, "")
            path = self._path(source.url, digest)
            if not digest or path not in self._last_used or not path.exists():
                return None
            self._last_used[path] = self._clock()
            return path

    def _fetch(self, source: ModuleSource, deadline: float) -> pathlib.Path:
        delay = _RETRY_SECONDS
        for attempt in range(self._max_retries + 1):
            try:
                module, digest = self._download(source, deadline)
                break
            except FetchError as error:
                if not error.is_retryable or attempt == self._max_retries or self._fetcher.remaining(deadline) <= delay:
                    raise
            self._sleep(delay)
            delay = min(2 * delay, _MAX_RETRY_SECONDS)
        if not module.startswith(MAGIC):
            raise FetchError(f"{source.url} is not a Wasm module", "fetch_failure")
        path = self._write(source, digest, module)
        self._observer.module_fetched("success")
        return path

    def _download(self, source: ModuleSource, deadline: float) -> tuple[bytes, str]:
        """Return a module and its checksum."""
        parts = urlsplit(source.url)
        insecure = bool(self._insecure_hosts & {"*", parts.netloc})
        if parts.scheme in ("http", "https"):
            attempt = min(deadline, self._fetcher.deadline(self._request_seconds))
            response = self._fetcher.get(source.url, attempt, insecure=insecure)
            if response.status != 200:
                raise FetchError(
                    f"{parts.netloc} returned status {response.status} for a Wasm module",
                    is_retryable=response.status >= 500,
                )
            checksums = frozenset((hashlib.sha256(response.body).hexdigest(),))
            return response.body, _verify_checksum(source, checksums)
        if parts.scheme != "oci":
            raise FetchError(f"unsupported URL scheme {parts.scheme!r} for a Wasm module")
        image = parse_image(source.url.removeprefix("oci://"))
        login = (
            find_login(source.pull_secret, image.registry)
            if source.pull_secret
            else self._configured_login(image.registry)
        )
        registry = RegistryClient(self._fetcher, image, login, deadline, insecure)
        manifest, digests = registry.manifest()
        digest = _verify_checksum(source, frozenset(name.removeprefix("sha256:") for name in digests))
        return find_module(manifest, registry.blob, self._fetcher.max_bytes), digest

    def _configured_login(self, registry: str) -> Login | None:
        """Return the login for a registry from the Docker configuration. Errors are logged."""
        try:
            return find_login(self._docker_config.read_text(), registry) if self._docker_config is not None else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("cannot read the Docker configuration %s: %s", self._docker_config, error)
            return None

    def _write(self, source: ModuleSource, digest: str, module: bytes) -> pathlib.Path:
        path = self._path(source.url, digest)
        with self._lock:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".new")
            temporary.write_bytes(module)
            os.replace(temporary, path)
            self._last_used[path] = self._clock()
            if not _digest_in(source.url):
                self._digests[source.url] = digest
                self._versions[source.url, source.resource] = source.version
            self._observer.modules_cached(len(self._last_used))
        return path

    def _path(self, url: str, digest: str) -> pathlib.Path:
        """Return the file of a module. Each image or URL has its own directory."""
        name = parse_image(url.removeprefix("oci://")).name if url.startswith("oci://") else url
        return self._directory / hashlib.sha256(name.encode()).hexdigest() / f"{digest}.wasm"


def _digest_in(url: str) -> str:
    """Return the digest in an image reference, or "" if it has none."""
    return parse_image(url.removeprefix("oci://")).digest.removeprefix("sha256:") if url.startswith("oci://") else ""


def _verify_checksum(source: ModuleSource, checksums: frozenset[str]) -> str:
    """Return the expected checksum, or else a checksum of the download.

    Raises FetchError if the download does not have the expected checksum.
    """
    expected = source.checksum or _digest_in(source.url)
    if expected and expected not in checksums:
        raise FetchError(f"the checksum of {source.url} is not {expected}", "checksum_mismatch")
    return expected or min(checksums)


def build_module_cache(settings: ModuleSettings, config_path: str, observer: CacheObserver) -> ModuleCache:
    """Return a cache in a subdirectory of the proxy's configuration directory.

    Raises ValueError, with a message for the user, if a setting is invalid.
    """
    try:
        rules = AddressRules(settings.allowed_cidrs, settings.blocked_cidrs)
    except ValueError as error:
        raise ValueError(f"ALLOWED_CIDRS_IN_WASM_FETCH, BLOCKED_CIDRS_IN_WASM_FETCH: {error}") from error
    tls = ssl.create_default_context()
    try:
        if settings.extra_roots:
            tls.load_verify_locations(cafile=settings.extra_roots)
    except OSError as error:
        raise ValueError(f"WASM_EXTRA_ROOTS: {settings.extra_roots}: {error}") from error
    fetcher = HttpFetcher(rules, tls, _unverified_tls(), settings.max_bytes)
    docker_config = pathlib.Path(settings.docker_config_directory or os.path.expanduser("~/.docker")) / "config.json"
    return ModuleCache(
        pathlib.Path(config_path) / DIRECTORY,
        fetcher,
        observer,
        frozenset(settings.insecure_hosts),
        settings.max_retries,
        docker_config=docker_config,
        request_seconds=settings.request_timeout.seconds,
    )


def _unverified_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def purge_forever(cache: ModuleCache, settings: ModuleSettings) -> None:
    """Remove unused modules at regular intervals until cancelled."""
    while True:
        await asyncio.sleep(settings.purge_interval.seconds)
        cache.purge(settings.expiry.seconds)

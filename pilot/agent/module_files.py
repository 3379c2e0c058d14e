"""Wires the fetching of Wasm modules by the agent's settings."""

from __future__ import annotations

import asyncio
import os
import pathlib
import ssl

from pilot.agent.modules.cache import CacheObserver, ModuleFiles
from pilot.agent.modules.fetch import HttpFetcher
from pilot.agent.settings import ModuleSettings
from pilot.lib.address_rules import AddressRules

FOLDER = "wasm"


def make_modules(settings: ModuleSettings, config_path: str, observer: CacheObserver) -> ModuleFiles:
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
    return ModuleFiles(
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


async def purge_forever(modules: ModuleFiles, settings: ModuleSettings) -> None:
    """Removes modules that nothing refers to, again and again."""
    while True:
        await asyncio.sleep(settings.purge.seconds)
        modules.purge(settings.life.seconds)

"""pilotctl bug-report: collect diagnostic data in an archive."""

from __future__ import annotations

import functools
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import click
from rich.console import Console
from rich.progress import track

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.command import with_client
from pilot.cli.ctl.envoy import request_admin
from pilot.lib.build_info import build_info
from pilot.lib.redact import redact

# Pages that are redundant, change state, or are fetched per proxy
_SKIPPED_PAGES = frozenset(
    {
        "list",
        "force_disconnect",
        "config_dump",
        "edsz",
        "ecdsz",
        "ndsz",
        "sidecarz",
        "authz",
        "describe",
        "explain",
        "endpointz",
        "pushcontext",
    }
)
_PROXY_PAGES = ("config_dump", "authz", "describe")
_ENVOY_PAGES = ("config_dump?include_eds", "clusters", "stats", "server_info")
PROXIES = 20


class Item(NamedTuple):
    """A file in the archive, and the function that fetches its content."""

    name: str
    fetch: Callable[[], str]


@click.command()
@click.option(
    "-o", "--output", metavar="FILE", help="file to write (default bug-report-TIME.tar.gz in the working directory)"
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    help=f"proxy to include; may be repeated (default: the first {PROXIES} connected proxies)",
)
@click.option(
    "--envoy", "envoys", multiple=True, metavar="URL", help="admin address of an Envoy to include; may be repeated"
)
@with_client
def bug_report(client: PageClient, output: str | None, proxies: Sequence[str], envoys: Sequence[str]) -> None:
    """Collect debug pages, metrics and proxy configuration in an archive. Keys, tokens and passwords are redacted.

    Data that cannot be fetched is recorded as missing in the archive.
    """
    client.text("version")  # fails early if the control plane is unreachable
    path = output or time.strftime("bug-report-%Y%m%d-%H%M%S.tar.gz", time.gmtime())
    items = list(_items(client, proxies, envoys))
    missing = []
    try:
        with tarfile.open(path, "w:gz") as archive:
            for item in track(
                items,
                description="Collecting",
                console=Console(stderr=True),
                disable=not Console(stderr=True).is_terminal,
            ):
                text, fault = _text(item)
                missing += [fault] if fault else []
                _add(archive, item.name, redact(text))
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(
        f"{path}: {len(items) - len(missing)} files. Keys, tokens and passwords are redacted. "
        "Review the archive before sharing it."
    )
    for fault in missing:
        click.echo(f"  missing: {fault}", err=True)


def _items(client: PageClient, proxies: Sequence[str], envoys: Sequence[str]) -> Iterator[Item]:
    yield Item("pilotctl-version.txt", lambda: str(build_info()))
    yield Item("version.txt", lambda: client.text("version"))
    yield Item("metrics.txt", lambda: client.text("metrics"))
    for page in client.get("list"):
        name = page.partition("?")[0]
        if name == page and name not in _SKIPPED_PAGES:
            yield Item(f"debug/{name}.json", functools.partial(client.text, f"debug/{name}"))
    for proxy in proxies or _connected(client):
        for page in _PROXY_PAGES:
            fetch = functools.partial(client.text, f"debug/{page}", proxyID=proxy)
            yield Item(f"proxies/{proxy}/{page}.json", fetch)
    for envoy in envoys:
        for page in _ENVOY_PAGES:
            name = f"envoys/{_file_name(envoy)}/{page.partition('?')[0]}.txt"
            yield Item(name, functools.partial(request_admin, envoy, page))


def _connected(client: PageClient) -> list[str]:
    return sorted(status["proxy"] for status in client.get("syncz"))[:PROXIES]


def _file_name(address: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in address.rpartition("://")[2])


def _text(item: Item) -> tuple[str, str]:
    """Return the content of a file, and "". If it cannot be fetched, return a placeholder and an error message."""
    try:
        return item.fetch(), ""
    except CommandError as error:
        return json.dumps({"notThere": error.message}), f"{item.name}: {error.message}"


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode()
    entry = tarfile.TarInfo(f"bug-report/{name}")
    entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
    archive.addfile(entry, io.BytesIO(data))

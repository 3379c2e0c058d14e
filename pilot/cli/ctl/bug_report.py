"""pilotctl bug-report: one archive of what somebody else needs to see."""

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
from pilot.cli.ctl.command import asks
from pilot.cli.ctl.envoy import ask
from pilot.lib.build_info import build_info
from pilot.lib.redact import redact

# Pages that are no JSON of their own worth, change something, or are asked for proxy by proxy
_NOT_ASKED = frozenset(
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
_OF_PROXY = ("config_dump", "authz", "describe")
_OF_ENVOY = ("config_dump?include_eds", "clusters", "stats", "server_info")
PROXIES = 20


class Item(NamedTuple):
    """A file of the archive, and how its text is had."""

    name: str
    fetch: Callable[[], str]


@click.command()
@click.option(
    "-o", "--output", metavar="FILE", help="where to write it; bug-report-TIME.tar.gz here where it is not said"
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    help=f"proxy to include; may be repeated (the first {PROXIES} that are connected)",
)
@click.option(
    "--envoy", "envoys", multiple=True, metavar="URL", help="admin port of an Envoy to include; may be repeated"
)
@asks
def bug_report(client: PageClient, output: str | None, proxies: Sequence[str], envoys: Sequence[str]) -> None:
    """One archive of what the control plane knows: pages, metrics, and the configuration of proxies. Keys, tokens and passwords are left out.

    What cannot be had is noted in the archive, and the rest goes into it all the same.
    """
    client.text("version")  # where nothing answers there is nothing to report
    path = output or time.strftime("bug-report-%Y%m%d-%H%M%S.tar.gz", time.gmtime())
    items = list(_items(client, proxies, envoys))
    missing = []
    try:
        with tarfile.open(path, "w:gz") as archive:
            for item in track(
                items,
                description="collecting",
                console=Console(stderr=True),
                disable=not Console(stderr=True).is_terminal,
            ):
                text, fault = _text(item)
                missing += [fault] if fault else []
                _add(archive, item.name, redact(text))
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(
        f"{path}: {len(items) - len(missing)} files. Keys, tokens and passwords are left out; look at it before you give it away."
    )
    for fault in missing:
        click.echo(f"  not there: {fault}", err=True)


def _items(client: PageClient, proxies: Sequence[str], envoys: Sequence[str]) -> Iterator[Item]:
    yield Item("pilotctl-version.txt", lambda: str(build_info()))
    yield Item("version.txt", lambda: client.text("version"))
    yield Item("metrics.txt", lambda: client.text("metrics"))
    for page in client.get("list"):
        name = page.partition("?")[0]
        if name == page and name not in _NOT_ASKED:
            yield Item(f"debug/{name}.json", functools.partial(client.text, f"debug/{name}"))
    for proxy in proxies or _connected(client):
        for page in _OF_PROXY:
            fetch = functools.partial(client.text, f"debug/{page}", proxyID=proxy)
            yield Item(f"proxies/{proxy}/{page}.json", fetch)
    for envoy in envoys:
        for page in _OF_ENVOY:
            name = f"envoys/{_file_name(envoy)}/{page.partition('?')[0]}.txt"
            yield Item(name, functools.partial(ask, envoy, page))


def _connected(client: PageClient) -> list[str]:
    return sorted(status["proxy"] for status in client.get("syncz"))[:PROXIES]


def _file_name(address: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in address.rpartition("://")[2])


def _text(item: Item) -> tuple[str, str]:
    """Returns the text of a file, and what is wrong where it cannot be had."""
    try:
        return item.fetch(), ""
    except CommandError as error:
        return json.dumps({"notThere": error.message}), f"{item.name}: {error.message}"


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode()
    entry = tarfile.TarInfo(f"bug-report/{name}")
    entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
    archive.addfile(entry, io.BytesIO(data))

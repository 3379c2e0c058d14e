"""pilotctl internal-debug: print a debug page of the control plane."""

from __future__ import annotations

import urllib.parse

import click
from click.shell_completion import CompletionItem

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.command import with_client
from pilot.cli.ctl.completions import SECONDS
from pilot.cli.ctl.connection import connect
from pilot.cli.ctl.output import as_json, write
from pilot.cli.ctl.replicas import Replicas


def _pages(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the page names for shell completion."""
    try:
        names = connect(ctx, seconds=SECONDS).get("list")
    except CommandError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command()
@click.argument("page", required=False, shell_complete=_pages)
@with_client
def internal_debug(client: Replicas, page: str | None) -> None:
    """Print a debug page, such as "syncz" or "config_dump?proxyID=web". Without PAGE, list the pages.

    With several replicas, the output is an object with the page of each replica, unless the page is about a proxy.
    """
    if page is None:
        write("\n".join(client.get("list")))
        return
    path, _, text = page.removeprefix("/").removeprefix("debug/").partition("?")
    query = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
    if len(client.replicas) == 1 or query.get("proxyID"):
        write(client.text(f"debug/{path}", **query).rstrip("\n"))
        return
    write(as_json({answer.replica.name: answer.value for answer in client.each(path, **query)}))

"""pilotctl internal-debug: print a debug page of the control plane."""

from __future__ import annotations

import urllib.parse

import click
from click.shell_completion import CompletionItem

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.command import with_client
from pilot.cli.ctl.output import write


def _pages(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the page names for shell completion."""
    try:
        names = PageClient(ctx.find_root().params["address"]).get("list")
    except CommandError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command()
@click.argument("page", required=False, shell_complete=_pages)
@with_client
def internal_debug(client: PageClient, page: str | None) -> None:
    """Print a debug page, such as "syncz" or "config_dump?proxyID=web". Without PAGE, list the pages."""
    if page is None:
        write("\n".join(client.get("list")))
        return
    path, _, query = page.removeprefix("/").removeprefix("debug/").partition("?")
    write(client.text(f"debug/{path}", **dict(urllib.parse.parse_qsl(query, keep_blank_values=True))).rstrip("\n"))

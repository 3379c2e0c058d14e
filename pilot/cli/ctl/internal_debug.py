"""pilotctl internal-debug: any page of the control plane as it is."""

from __future__ import annotations

import urllib.parse

import click
from click.shell_completion import CompletionItem

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.command import asks
from pilot.cli.ctl.output import write


def _pages(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Returns the names of pages, for a shell that completes one."""
    try:
        names = PageClient(ctx.find_root().params["address"]).get("list")
    except CommandError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command()
@click.argument("page", required=False, shell_complete=_pages)
@asks
def internal_debug(client: PageClient, page: str | None) -> None:
    """Any debug PAGE as the control plane answers it, such as "syncz" or "config_dump?proxyID=web"; without one, the list of pages."""
    if page is None:
        write("\n".join(client.get("list")))
        return
    path, _, query = page.removeprefix("/").removeprefix("debug/").partition("?")
    write(client.text(f"debug/{path}", **dict(urllib.parse.parse_qsl(query, keep_blank_values=True))).rstrip("\n"))

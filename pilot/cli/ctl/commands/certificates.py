"""pilotctl certificates: list the certificates that the control plane knows."""

from __future__ import annotations

import time
from typing import Any

import click

from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.ctl.replicas import Replicas

_HEAD = ("CERTIFICATE", "USED BY", "EXPIRES", "LEFT")


@click.command()
@with_output
@with_client
def certificates(client: Replicas) -> CommandResult:
    """List the certificates of the built-in authority and of Secrets, those that expire first on top.

    The certificates of workloads are only in their Envoys: see `proxy-config secrets`.
    """
    page = sorted(client.get("certificatez"), key=lambda one: (one["ends"], one["name"]))
    now = time.time()
    rows = [_row(one, now) for one in page]
    return CommandResult(page, [TextTable(_HEAD, rows) if rows else "The control plane knows no certificates."])


def _row(one: dict[str, Any], now: float) -> tuple[str, ...]:
    expires = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(one["ends"]))
    return one["name"], ", ".join(one["usedBy"]) or "-", expires, _left(one["ends"] - now)


def _left(seconds: float) -> str:
    if seconds <= 0:
        return "EXPIRED"
    return f"{int(seconds // 86_400)} days" if seconds >= 2 * 86_400 else f"{int(seconds // 3_600)} hours"

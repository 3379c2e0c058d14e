"""pilotctl certificates: list the certificates that the control plane knows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.ctl.replicas import Replicas

_WEEK = 7 * 86_400
_WORKLOADS = "Certificates of workloads are not listed: agents renew them. See pilotctl proxy-config secrets PROXY."
_HEAD = ("CERTIFICATE", "USED BY", "EXPIRES", "LEFT")


@click.command()
@with_output
@with_client
def certificates(client: Replicas) -> CommandResult:
    """List the certificates of the built-in authority and of Secrets: those that have expired or expire first on top.

    USED BY are the Gateways that refer to a Secret. Workloads use the certificates of the authority. The certificates
    of workloads are not listed. They are short-lived, and agents renew them: see `proxy-config secrets`.
    """
    page = sorted(client.get("certificatez"), key=lambda one: (one["ends"], one["name"]))
    now = time.time()
    rows = [_row(one, now) for one in page]
    table = TextTable(_HEAD, rows) if rows else "The control plane knows no certificates."
    return CommandResult(page, [table, *_summary([one["ends"] - now for one in page]), _WORKLOADS])


def _summary(left: list[float]) -> Iterator[str]:
    """Yield the numbers of certificates that have expired, and that expire within a week."""
    expired, soon = sum(seconds <= 0 for seconds in left), sum(0 < seconds < _WEEK for seconds in left)
    if expired or soon:
        yield f"{expired} expired, {soon} {'expires' if soon == 1 else 'expire'} within a week."


def _row(one: dict[str, Any], now: float) -> tuple[str, ...]:
    expires = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(one["ends"]))
    unused = "not used" if one["name"].startswith("Secret ") else "all workloads"
    return one["name"], ", ".join(one["usedBy"]) or unused, expires, _left(one["ends"] - now)


def _left(seconds: float) -> str:
    if seconds <= 0:
        return "EXPIRED"
    return f"{int(seconds // 86_400)} days" if seconds >= 2 * 86_400 else f"{int(seconds // 3_600)} hours"

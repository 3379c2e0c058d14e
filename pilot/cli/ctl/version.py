"""pilotctl version: which build is this, which one answers, and which proxies are connected to it?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.command import answers, asks
from pilot.cli.ctl.output import CommandResult
from pilot.lib.build_info import build_info


@click.command()
@click.option("--remote/--no-remote", default=True, help="ask the control plane too, which is done unless --no-remote")
@answers
@asks
def version(client: PageClient, remote: bool) -> CommandResult:
    """The versions of this program, of the control plane, and of the proxies that are connected to it."""
    found: dict[str, Any] = {"clientVersion": {"version": build_info().version}}
    fault = ""
    if remote:
        try:
            found["meshVersion"] = [{"Component": "pilot", "Info": {"version": client.text("version").strip()}}]
            found["dataPlaneVersion"] = [
                {"ID": p["proxy"], "IstioVersion": p.get("istio_version", ""), "Type": p.get("proxy_type", "")}
                for p in client.get("syncz")
            ]
        except CommandError as error:
            fault = error.message
    return CommandResult(found, _parts(found, fault))


def _parts(found: dict[str, Any], fault: str) -> Iterator[str]:
    yield f"client version: {found['clientVersion']['version']}"
    for server in found.get("meshVersion", ()):
        yield f"control plane version: {server['Info']['version']}"
    proxies = Counter(proxy["IstioVersion"] or "unknown" for proxy in found.get("dataPlaneVersion", ()))
    if proxies:
        yield "data plane version: " + ", ".join(
            f"{version} ({_count(count)})" for version, count in sorted(proxies.items())
        )
    elif "dataPlaneVersion" in found:
        yield "data plane version: none, no proxy is connected"
    if fault:
        yield f"control plane version: {fault}"


def _count(proxies: int) -> str:
    return f"{proxies} prox{'y' if proxies == 1 else 'ies'}"

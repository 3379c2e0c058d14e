"""pilotctl version: show the versions of pilotctl, the control plane and its proxies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.output import CommandResult
from pilot.cli.ctl.replicas import Replicas
from pilot.lib.build_info import UNKNOWN, build_info


@click.command()
@click.option("--remote/--no-remote", default=True, help="also query the control plane (default)")
@with_output
@with_client
def version(client: Replicas, remote: bool) -> CommandResult:
    """Show the versions of pilotctl, the control plane and its connected proxies."""
    versions: dict[str, Any] = {"clientVersion": {"version": build_info().version}}
    fault = ""
    if remote:
        try:
            versions["meshVersion"] = [
                {"Component": "pilot", "Info": {"version": answer.value.strip().replace(f"-{UNKNOWN}", "")}}
                for answer in client.ask(lambda replica: replica.text("version"))
            ]
            versions["dataPlaneVersion"] = [
                {"ID": p["proxy"], "IstioVersion": p.get("istio_version", ""), "Type": p.get("proxy_type", "")}
                for p in client.get("syncz")
            ]
        except CommandError as error:
            fault = error.message
    return CommandResult(versions, _parts(versions, fault))


def _parts(versions: dict[str, Any], fault: str) -> Iterator[str]:
    yield f"client version: {versions['clientVersion']['version']}"
    for server in dict.fromkeys(server["Info"]["version"] for server in versions.get("meshVersion", ())):
        yield f"control plane version: {server}"
    proxies = Counter(proxy["IstioVersion"] or "unknown" for proxy in versions.get("dataPlaneVersion", ()))
    if proxies:
        yield "data plane version: " + ", ".join(
            f"{version} ({_count(count)})" for version, count in sorted(proxies.items())
        )
    elif "dataPlaneVersion" in versions:
        yield "data plane version: none (no proxies are connected)"
    if fault:
        yield f"control plane version: {fault}"


def _count(proxies: int) -> str:
    return f"{proxies} prox{'y' if proxies == 1 else 'ies'}"

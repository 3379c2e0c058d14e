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
from pilot.lib.build_info import UNKNOWN, BuildInfo, build_info


@click.command()
@click.option("--remote/--no-remote", default=True, help="also query the control plane (default)")
@click.option("-s", "--short/--no-short", default=True, help="omit the commit of pilotctl (default)")
@with_output
@with_client
def version(client: Replicas, remote: bool, short: bool) -> CommandResult:
    """Show the versions of pilotctl, the control plane and its connected proxies."""
    versions: dict[str, Any] = {"clientVersion": _info(build_info())}
    fault = ""
    if remote:
        try:
            versions["meshVersion"] = [
                {
                    "Component": "pilot",
                    "Revision": answer.replica.revision or UNKNOWN,
                    "Info": _info(BuildInfo(*answer.value.strip().split("-", 2))),
                }
                for answer in client.ask(lambda replica: replica.text("version"))
            ]
            versions["dataPlaneVersion"] = [
                {"ID": p["proxy"], "IstioVersion": p.get("istio_version", ""), "Type": _type(p)}
                for p in client.get("syncz")
            ]
        except CommandError as error:
            fault = error.message
    return CommandResult(versions, _parts(versions, fault, short))


def _info(build: BuildInfo) -> dict[str, str]:
    """Return the version, the commit and the status of a build, as istioctl prints them."""
    return {**build._asdict(), "tag": build.tag}


def _type(status: dict[str, Any]) -> str:
    """Return the type of a proxy in istioctl's words."""
    kind = str(status.get("proxy_type", ""))
    return "gateway" if kind == "router" else kind


def _parts(versions: dict[str, Any], fault: str, short: bool) -> Iterator[str]:
    yield f"client version: {build_info().version if short else build_info()}"
    infos = (server["Info"] for server in versions.get("meshVersion", ()))
    builds = (BuildInfo(info["version"], info["revision"], info["status"]) for info in infos)
    for build in dict.fromkeys(map(str, builds)):
        yield f"control plane version: {build}"
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

"""pilotctl rollout and history: show how far changes have been delivered, and what they cost."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import click

from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.completions import complete_namespaces
from pilot.cli.ctl.output import CommandResult, Part, TextTable
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.rollout import named_targets, read_rollouts, rollout_table
from pilot.lib.text import human_size

_HEAD = (
    *("TIME", "REPLICA", "CHANGE", "BY", "PROXIES", "ACKNOWLEDGED", "REFUSED", "DERIVATIONS", "BYTES"),
    *("50%", "99%", "LAST"),
)


@click.group()
def rollout() -> None:
    """Show how far changes have been delivered to proxies."""


@rollout.command()
@click.argument("objects", nargs=-1, required=True, metavar="KIND/NAME...")
@click.option("-n", "--namespace", default="", help="namespace of the objects", shell_complete=complete_namespaces)
@with_output
@with_client
def status(client: Replicas, objects: tuple[str, ...], namespace: str) -> CommandResult:
    """Show how many proxies of each replica have acknowledged or refused the last change of objects.

    Use `pilotctl wait` to wait for them.
    """
    rollouts = read_rollouts(client, named_targets(objects, namespace))
    refusals = [
        f"{refusal['proxy']} has refused {one.target}: {refusal['reason']}"
        for one in rollouts
        for refusal in one.page["refusals"]
    ]
    pages = [{"replica": one.replica, "state": one.state, **one.page} for one in rollouts]
    return CommandResult(pages, [rollout_table(rollouts), *refusals])


@click.command()
@with_output
@with_client
def history(client: Replicas) -> CommandResult:
    """List the last changes, newest first: what they made the control plane compute and send, and how long it took."""
    answers = client.each("history")
    changes = [{"replica": answer.replica.name, **change} for answer in answers for change in answer.value["changes"]]
    changes.sort(key=lambda change: -change["time"])
    value = {"changes": changes, "replicas": {a.replica.name: a.value | {"changes": None} for a in answers}}
    return CommandResult(value, _parts(changes, {a.replica.name: a.value for a in answers}))


def _parts(changes: list[dict[str, Any]], replicas: dict[str, dict[str, Any]]) -> Iterator[Part]:
    yield TextTable(_HEAD, [_row(change) for change in changes]) if changes else "No changes."
    for name, page in replicas.items():
        costs = (
            f"{title} {human_size(sum(page[title]['bytes'].values()))}" for title in ("requests", "others", "total")
        )
        yield f"{name}: {', '.join(costs)}"


def _row(change: dict[str, Any]) -> tuple[object, ...]:
    seconds = (f"{change[name]:.3f}s" if change.get(name) else "-" for name in ("p50", "p99", "seconds"))
    return (
        datetime.datetime.fromtimestamp(change["time"], datetime.UTC).strftime("%Y-%m-%d %H:%M:%S"),
        change["replica"],
        _title(change),
        ", ".join(dict.fromkeys(o["manager"] for o in change["objects"] if o["manager"])) or "-",
        change["proxies"] - change.get("unchanged", 0),
        change.get("acknowledged", 0),
        change.get("refused", 0),
        change["derivations"],
        human_size(sum(change["bytes"].values())),
        *seconds,
    )


def _title(change: dict[str, Any]) -> str:
    """Return a text that names the first object of a change, and the number of others."""
    if not change["objects"]:
        return f"{change['endpoints']} Pods and EndpointSlices"
    first = change["objects"][0]
    name = "/".join(part for part in (first["kind"], first["namespace"], first["name"]) if part)
    generation = f" ({first['generation']})" if first["generation"] else ""
    more = f" and {change['total'] - 1} more" if change["total"] > 1 else ""
    return f"{first['action']} {name}{generation}{more}"

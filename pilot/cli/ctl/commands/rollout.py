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
from pilot.cli.ctl.rollout import describe_lacking, named_targets, read_rollouts, refuse_unknown, rollout_table
from pilot.lib.text import human_size

_HEAD = (
    *("TIME (UTC)", "REPLICA", "CHANGE", "BY", "PROXIES", "ACKNOWLEDGED", "REFUSED", "PENDING", "DERIVATIONS", "BYTES"),
    *("50% AFTER", "99% AFTER", "ALL AFTER"),
)
_NAMED = 3
"""Maximum number of objects of a change that its title names."""


@click.group()
def rollout() -> None:
    """Show how far changes have been delivered to proxies."""


@rollout.command()
@click.argument("objects", nargs=-1, required=True, metavar="KIND/NAME...")
@click.option("-n", "--namespace", default="", help="namespace of the objects", shell_complete=complete_namespaces)
@with_output
@with_client
def status(client: Replicas, objects: tuple[str, ...], namespace: str) -> CommandResult:
    """Show how many proxies have the last change of objects.

    Objects are named as KIND/NAME or KIND/NAMESPACE/NAME, such as virtualservice/shop/cart. KIND may be a short name,
    such as vs. As with istioctl, KIND NAME.NAMESPACE is also accepted.

    The table shows for each replica how many connected proxies each object affects, and how many of them have
    acknowledged or refused its last change. The lines below it name the others and the errors of the objects. Use
    `pilotctl wait` to wait for the proxies.
    """
    rollouts = read_rollouts(client, named_targets(objects, namespace))
    refuse_unknown(rollouts)
    lines = [f"{one.target}: {line}" for one in rollouts for line in (*_errors(one.page), *describe_lacking(one.page))]
    pages = [{"replica": one.replica, "state": one.state, **one.page} for one in rollouts]
    return CommandResult(pages, [rollout_table(rollouts), *dict.fromkeys(lines)])


def _errors(page: dict[str, Any]) -> list[str]:
    """Return a line about each error of an object."""
    return [" ".join(("has an error:", *filter(None, (e.get("path"), e["message"])))) for e in page["errors"]]


@click.command()
@click.option(
    "-n",
    "--namespace",
    default="",
    help="only changes of objects in this namespace",
    shell_complete=complete_namespaces,
)
@with_output
@with_client
def history(client: Replicas, namespace: str) -> CommandResult:
    """List the last changes, their cost and their delivery.

    The newest change is on top. The columns show how many proxies it affects and have acknowledged or refused it, what
    the control plane derived and sent for it, and the time until half, 99 % and all of the proxies acknowledged it.
    "has errors" marks the last change of an object that has errors now.
    """
    answers = client.each("history")
    changes = [{"replica": answer.replica.name, **change} for answer in answers for change in answer.value["changes"]]
    changes.sort(key=lambda change: -change["time"])
    if namespace:
        changes = [change for change in changes if any(o["namespace"] == namespace for o in change["objects"])]
    value = {"changes": changes, "replicas": {a.replica.name: a.value | {"changes": None} for a in answers}}
    return CommandResult(value, _parts(changes, {a.replica.name: a.value for a in answers}))


def _parts(changes: list[dict[str, Any]], replicas: dict[str, dict[str, Any]]) -> Iterator[Part]:
    yield TextTable(_HEAD, [_row(change) for change in changes]) if changes else "No changes."
    for name, page in replicas.items():
        sizes = {title: human_size(sum(page[title]["bytes"].values())) for title in ("requests", "others", "total")}
        yield (
            f"{name} has sent {sizes['total']}: {sizes['requests']} because proxies subscribed, {sizes['others']} for "
            "older changes, and the rest for the changes above"
        )


def _row(change: dict[str, Any]) -> tuple[object, ...]:
    affected = change["proxies"] - change.get("unchanged", 0)
    acknowledged, refused = change.get("acknowledged", 0), change.get("refused", 0)
    pending = max(0, affected - acknowledged - refused - change.get("gone", 0))
    times = {"p50": acknowledged, "p99": acknowledged, "seconds": acknowledged and not pending}
    seconds = (f"{change[name]:.3f}s" if is_known and change.get(name) else "-" for name, is_known in times.items())
    return (
        datetime.datetime.fromtimestamp(change["time"], datetime.UTC).strftime("%Y-%m-%d %H:%M:%S"),
        change["replica"],
        _title(change),
        ", ".join(dict.fromkeys(o["manager"] for o in change["objects"] if o["manager"])) or "-",
        *(affected, acknowledged, refused, pending),
        change["derivations"],
        human_size(sum(change["bytes"].values())),
        *seconds,
    )


def _title(change: dict[str, Any]) -> str:
    """Return a text that names the first objects of a change, and the number of others."""
    names = [_name(one) for one in change["objects"][:_NAMED]]
    rest = change["total"] + change["endpoints"] - len(names)
    more = f" and {rest} more" if rest > 0 else ""
    return f"{', '.join(names)}{more}{_fields(change)}{'; has errors' if change['errors'] else ''}"


def _fields(change: dict[str, Any]) -> str:
    """Return the first field that a change has updated, with its values, and the number of the others."""
    fields = [field for one in change["objects"] for field in one.get("fields", ())]
    if not fields:
        return ""
    path, old, new = (fields[0][name] for name in ("path", "old", "new"))
    values = f": {old or 'not set'} → {new or 'not set'}" if old or new else ""
    return f"; {path}{values}{f' and {len(fields) - 1} more fields' if len(fields) > 1 else ''}"


def _name(one: dict[str, Any]) -> str:
    name = "/".join(part for part in (one["kind"], one["namespace"], one["name"]) if part)
    return f"{one['action']} {name}" + (f" ({one['generation']})" if one["generation"] else "")

"""pilotctl rollout and history: show how far changes have been delivered, and what they cost."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import click

from pilot.cli.ctl.cluster import NAMESPACE_DEFAULT
from pilot.cli.ctl.command import AliasGroup, with_client, with_output
from pilot.cli.ctl.completions import complete_namespaces
from pilot.cli.ctl.output import CommandResult, TextTable, fit, fold, shorten
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.rollout import Rollout, describe_lacking, named_targets, read_rollouts, refuse_unknown, rollout_table
from pilot.lib.text import human_size

_HEAD = "TIME (UTC)", "CHANGE", "ERRORS", "BY", "ACKNOWLEDGED", "REJECTED", "PENDING"
_SHORTENED = "BY", "ERRORS"
"""Columns that are shortened if a table is wider than the terminal. The names of objects stay whole."""
_COSTS = "DERIVATIONS", "BYTES", "50% AFTER", "99% AFTER", "ALL AFTER"
Row = Sequence[object]
_NAMED = 3
"""Maximum number of objects of a change that are named."""
_FIELDS = 3
"""Maximum number of updated fields of a change that are shown without -v."""


_OF_WORKLOADS = {name: f"use kubectl rollout {name} {{arguments}}" for name in ("restart", "undo", "pause", "resume")}
HINTS = _OF_WORKLOADS | {
    "history": "pilotctl history lists changes of mesh configuration, and kubectl rollout history {arguments} those of "
    "workloads"
}
"""Hints for commands of kubectl rollout."""


@click.group(cls=AliasGroup, hints=HINTS)
def rollout() -> None:
    """Show how far changes have been delivered to proxies."""


@rollout.command()
@click.argument("objects", nargs=-1, required=True, metavar="KIND/NAME...")
@click.option(
    "-n",
    "--namespace",
    default="",
    help=f"namespace of the objects ({NAMESPACE_DEFAULT})",
    shell_complete=complete_namespaces,
)
@with_output
@with_client
def status(client: Replicas, objects: tuple[str, ...], namespace: str) -> CommandResult:
    """Show how many proxies have the last change of objects.

    Objects are named as KIND/NAME or KIND/NAMESPACE/NAME, such as virtualservice/shop/cart. KIND may be a short name,
    such as vs. As with istioctl, KIND NAME.NAMESPACE is also accepted.

    The table shows for each replica how many connected proxies each object affects, and how many of them have
    acknowledged or rejected its last change. DISCONNECTED counts proxies that have closed their streams before they
    responded; they get the current configuration when they connect again. INCOMPLETE means that proxies reject their
    configuration because of other objects. The lines below the table name the others and the errors of the objects. Use
    `pilotctl wait` to wait for the proxies.
    """
    rollouts = read_rollouts(client, named_targets(objects, namespace))
    refuse_unknown(rollouts)
    several = len({one.replica for one in rollouts}) > 1
    lines = [line for one in rollouts for line in (_summary(one, several), *(f"  {text}" for text in _lines(one.page)))]
    pages = [{"replica": one.replica, "state": one.state, **one.page} for one in rollouts]
    return CommandResult(pages, [rollout_table(rollouts), *(fold(line, "", "    ") for line in lines)])


def _summary(one: Rollout, with_replica: bool) -> str:
    """Return a line about how many of the proxies have the last change of an object."""
    at = f" at {one.replica}" if with_replica else ""
    affected, acknowledged = one.page["affected"], one.page["acknowledged"]
    if not affected:
        return f"{one.target} affects no connected proxy{at}."
    proxies = "proxy" if affected == 1 else "proxies"
    number = f"all {affected}" if acknowledged == affected > 1 else f"{acknowledged} of {affected}"
    return f"{one.target} is live on {number} affected {proxies}{at}."


def _lines(page: dict[str, Any]) -> Iterator[str]:
    """Yield the errors of an object, the proxies that lack its last change, and the number of disconnected ones."""
    yield from _errors(page)
    yield from describe_lacking(page)
    if number := page["disconnected"]:
        proxies = "1 proxy" if number == 1 else f"{number} proxies"
        yield f"{proxies} disconnected before responding, and will get it when connecting again"


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
@click.option("-v", "--verbose", is_flag=True, help="show whole values, all fields, costs and times")
@with_output
@with_client
def history(client: Replicas, namespace: str, verbose: bool) -> CommandResult:
    """List the last changes and their delivery. The newest change is on top.

    ACKNOWLEDGED is the number of proxies that have acknowledged a change, of those that it affects. ERRORS lists the
    codes of the errors that the changed objects have now, as `pilotctl problems` does. Below a change are the other
    objects that it changed, and the first fields that it has updated, with their old and new values. BY, if it is
    known, is the client of the API server that wrote the objects. With -v, the columns also show what the control plane
    derived and sent for a change, and the time until half, 99 % and all of the proxies acknowledged it.
    """
    answers = client.each("history")
    changes = [{"replica": answer.replica.name, **change} for answer in answers for change in answer.value["changes"]]
    changes.sort(key=lambda change: -change["time"])
    every = len(changes)
    if namespace:
        changes = [change for change in changes if any(o["namespace"] == namespace for o in change["objects"])]
    value = {"changes": changes, "replicas": {a.replica.name: a.value | {"changes": None} for a in answers}}
    if not changes:
        remark = client.describe_missing_namespace(namespace)
        within = f" of objects in the namespace {namespace}; {every} in others{remark}" if namespace else ""
        return CommandResult(value, [f"No changes{within}."])
    is_by_known = any(o["manager"] for change in changes for o in change["objects"])
    head = tuple(name for name in _HEAD if name != "BY" or is_by_known)
    replica = ("REPLICA",) if len(answers) > 1 else ()
    if not verbose:
        shortened = [head.index(name) for name in _SHORTENED if name in head]
        return CommandResult(value, [fit(_table(changes, (*head, *replica), _FIELDS), shortened)])
    whole = _table(changes, (*head, *replica, *_COSTS), None)
    return CommandResult(value, [whole, *_totals({a.replica.name: a.value for a in answers})])


def _totals(replicas: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield a line about what each replica has sent."""
    for name, page in replicas.items():
        sizes = {title: human_size(sum(page[title]["bytes"].values())) for title in ("requests", "others", "total")}
        yield (
            f"{name} has sent {sizes['total']}: {sizes['requests']} because proxies subscribed, {sizes['others']} for "
            "older changes, and the rest for the changes above"
        )


def _table(changes: list[dict[str, Any]], head: tuple[str, ...], most: int | None) -> TextTable:
    """Return a table of changes. Below each are other objects and at most `most` of the fields that it has updated."""
    rows: list[Sequence[object]] = []
    for change in changes:
        cells = _cells(change)
        lines = (*map(_name, change["objects"][1:_NAMED]), *_fields(change, most), *_rejections(change))
        rows += [[cells[name] for name in head], *([f"  {line}"] for line in lines)]
    return TextTable(head, rows)


def _cells(change: dict[str, Any]) -> dict[str, object]:
    """Return the cells of a change by column."""
    names = (*_HEAD, "REPLICA", *_COSTS)
    return dict(zip(names, (*_row(change), change["replica"], *_cost(change)), strict=True))


def _row(change: dict[str, Any]) -> Row:
    affected, acknowledged, rejected, pending = _counts(change)
    return (
        datetime.datetime.fromtimestamp(change["time"], datetime.UTC).strftime("%Y-%m-%d %H:%M:%S"),
        _title(change),
        ", ".join(dict.fromkeys(error["code"] for error in change["errors"])) or "-",
        ", ".join(dict.fromkeys(o["manager"] for o in change["objects"] if o["manager"])) or "-",
        *(f"{acknowledged}/{affected}", rejected, pending),
    )


def _counts(change: dict[str, Any]) -> tuple[int, int, int, int]:
    """Return the numbers of proxies that a change affects, and of those that have acknowledged it, rejected it, or not
    responded to it."""
    affected = change["proxies"] - change.get("unchanged", 0)
    acknowledged, rejected = change.get("acknowledged", 0), change.get("refused", 0)
    return affected, acknowledged, rejected, max(0, affected - acknowledged - rejected - change.get("gone", 0))


def _cost(change: dict[str, Any]) -> Row:
    _, acknowledged, _, pending = _counts(change)
    times = {"p50": acknowledged, "p99": acknowledged, "seconds": acknowledged and not pending}
    seconds = (f"{change[name]:.3f}s" if is_known and change.get(name) else "-" for name, is_known in times.items())
    return change["derivations"], human_size(sum(change["bytes"].values())), *seconds


def _title(change: dict[str, Any]) -> str:
    """Return a text that names the first object of a change, and the number of others."""
    objects, rest = change["objects"], change["total"] + change["endpoints"]
    if not objects:
        return f"{rest} Pods or EndpointSlices"
    return _name(objects[0]) + (f" and {rest - 1} more" if rest > 1 else "")


def _fields(change: dict[str, Any], most: int | None) -> Iterator[str]:
    """Yield the first fields that a change has updated, with their values, and the number of the others."""
    fields = [field for one in change["objects"] for field in one.get("fields", ())]
    for number, field in enumerate(fields[:most], 1):
        path, old, new = (field[name] for name in ("path", "old", "new"))
        values = f": {old or 'not set'} → {new or 'not set'}" if old or new else ""
        left = len(fields) - number if number == most else 0
        more = f" and {left} more {'field' if left == 1 else 'fields'}" if left else ""
        yield f"{path}{values}{more}" if most is None else shorten(f"{path}{values}{more}")


def _rejections(change: dict[str, Any]) -> Iterator[str]:
    """Yield that proxies have rejected a change because of objects that it has not changed."""
    own = {(o["kind"], o["namespace"], o["name"]) for o in change["objects"]}
    causes = [ref for ref in change.get("refusedFor", ()) if (ref["kind"], ref["namespace"], ref["name"]) not in own]
    if len(causes) == len(change.get("refusedFor", ())):
        for ref in causes[:_NAMED]:
            proxies = "1 proxy" if ref["proxies"] == 1 else f"{ref['proxies']} proxies"
            cause = f"{ref['kind']} {ref['namespace']}/{ref['name']}"
            yield f"rejected by {proxies} because of {cause}, not because of this change"


def _name(one: dict[str, Any]) -> str:
    name = "/".join(part for part in (one["kind"], one["namespace"], one["name"]) if part)
    return f"{one['action']} {name}" + (f" ({one['generation']})" if one["generation"] else "")

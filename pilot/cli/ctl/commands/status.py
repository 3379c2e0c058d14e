"""pilotctl status: show the status of Gateway API resources and Ingresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.completions import complete_namespaces
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.request_texts import ANY_NAMESPACE
from pilot.lib.text import one_line

_CONDITIONS = ("Accepted", "Programmed", "ResolvedRefs")
_NEGATIVE_POLARITY = ("Conflicted",)
_HEAD = ("OBJECT", "PART", "ACCEPTED", "PROGRAMMED", "RESOLVED", "REASON")


@click.command()
@click.option(
    "-n", "--namespace", type=ANY_NAMESPACE, help="only objects in this namespace", shell_complete=complete_namespaces
)
@click.option("-k", "--kind", default="", help="only objects of this kind, such as httproute")
@with_output
@with_client
def status(client: Replicas, namespace: str | None, kind: str) -> CommandResult:
    """Show the status conditions of Gateway API resources and Ingresses."""
    query = {"namespace": namespace, "kind": kind or None}
    objects = client.get("statusz", **{name: value for name, value in query.items() if value is not None})
    rows = [(_name(one) if not n else "", *row) for one in objects for n, row in enumerate(_rows(one["status"]))]
    if not rows:
        place = f" in the namespace {namespace}{client.describe_missing_namespace(namespace)}" if namespace else ""
        return CommandResult(objects, [f"No objects{place}."])
    return CommandResult(objects, [TextTable(_HEAD, rows)])


def _name(one: dict[str, Any]) -> str:
    return f"{one['kind']} " + "/".join(part for part in (one["namespace"], one["name"]) if part)


def _rows(object_status: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each list of conditions."""
    if "conditions" in object_status:
        addresses = ", ".join(address["value"] for address in object_status.get("addresses", ()))
        yield (addresses, *_condition_cells(object_status["conditions"]))
    for listener in object_status.get("listeners", ()):
        yield (
            f"listener {listener['name']}, {listener['attachedRoutes']} routes",
            *_condition_cells(listener["conditions"]),
        )
    for field, ref in (("parents", "parentRef"), ("ancestors", "ancestorRef")):
        for entry in object_status.get(field, ()):
            yield (f"{entry[ref]['kind']} {_target(entry[ref])}", *_condition_cells(entry["conditions"]))
    if "loadBalancer" in object_status:
        yield (
            ", ".join(next(iter(one.values())) for one in object_status["loadBalancer"]["ingress"]) or "no address",
            "",
            "",
            "",
            "",
        )


def _target(ref: dict[str, Any]) -> str:
    name = "/".join(part for part in (ref.get("namespace"), ref["name"]) if part)
    section = ref.get("sectionName") or ref.get("port")
    return f"{name}:{section}" if section else name


def _condition_cells(conditions: Iterable[dict[str, str]]) -> tuple[str, ...]:
    condition_list = list(conditions)
    by_type = {c["type"]: c["status"] for c in condition_list}
    wrong = [
        c
        for c in condition_list
        if c["status"] == ("True" if c["type"] in _NEGATIVE_POLARITY else "False")
        and c["type"] in (*_CONDITIONS, *_NEGATIVE_POLARITY)
    ]
    reasons = dict.fromkeys(f"{c['reason']}: {c['message']}" for c in wrong)
    return (*(by_type.get(type_, "") for type_ in _CONDITIONS), one_line("; ".join(reasons)))

"""Findings about the mesh, in sentences with links. The first finding is the headline of the dashboard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pilot.config.kinds.istio import SERVICE_ENTRY, VIRTUAL_SERVICE
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.object import Object
from pilot.config.problem import ObjectRef, plain_ref
from pilot.debug.dashboard.effects import UNREADY
from pilot.debug.dashboard.service_routes import fault_texts
from pilot.debug.finding_parts import (
    LEVELS,
    FindingLevel,
    MeshFinding,
    Moment,
    Part,
    Plain,
    ViewLink,
    number_of,
    object_link,
    proxy_link,
)
from pilot.debug.terms import not_responding, rejects
from pilot.lib.text import cut
from pilot.mesh.analysis.nack import REJECTED
from pilot.mesh.analysis.route_port import ignores_http
from pilot.mesh.tables.database import Mesh

_APART = frozenset({REJECTED, "certificate-expired"})
"""Codes of errors that sentences about proxies and certificates report."""
MOST = 3
"""Maximum number of errors of objects that have a sentence each."""
_DAY = 86400.0
SOON = 7 * _DAY
"""Seconds before its end from which on a certificate is reported."""
MANY = 0.1
"""The share of proxies that are not responding from which on this is an error."""
_LONGEST_ERROR, _LONGEST_MESSAGE = 200, 160


class InjectedFault(NamedTuple):
    """A VirtualService that injects faults. `text` continues its name."""

    object: ObjectRef
    text: str


class MeshState(NamedTuple):
    """The state of the mesh. `shown` has the parts `fleet`, `problems` and `changes` of the event stream.

    Each problem has the fields of its `ErrorEffect`. `faults` are the VirtualServices that inject faults, and
    `services` is the number of services.
    """

    shown: Mapping[str, Any]
    certificates: Sequence[Plain]
    faults: Sequence[InjectedFault]
    services: int


def find_all(state: MeshState, now: float) -> list[MeshFinding]:
    """Return what is wrong at a Unix time, the worst first: what makes requests fail, and then what affects most. If
    nothing is wrong, the first finding says so."""
    fleet = state.shown["fleet"]
    results = [
        *_rejections(fleet, now),
        *_errors(state.shown["problems"]),
        *_silent(fleet),
        *_certificates(state.certificates, now),
        *_faults(state.faults),
        *_delivery(fleet, state.shown["changes"]),
    ]
    if not any(one.level in ("bad", "warn") for one in results):
        results.append(_calm(fleet, state.services))
    return sorted(results, key=lambda one: (LEVELS.index(one.level), not one.fails, -one.impact))


def fault_of(db: Mesh, row: Object[VirtualService]) -> InjectedFault | None:
    """Return the first faults that a VirtualService injects, or None if it injects none."""
    if not any(rule.fault for rule in row.spec.http) or ignores_http(db, row.key):
        return None
    text = next((" and ".join(texts) for rule in row.spec.http if (texts := fault_texts(rule))), "")
    return InjectedFault(row.ref, text) if text else None


def faults_in(db: Mesh) -> Iterator[InjectedFault | None]:
    """Yield the faults of each VirtualService, and None for those that inject none."""
    return (fault_of(db, row) for _, row in list(VIRTUAL_SERVICE.table(db).rows()))


def count_services(db: Mesh) -> int:
    """Return the number of Services and ServiceEntries."""
    return len(SERVICE.table(db)) + len(SERVICE_ENTRY.table(db))


# -- proxies -----------------------------------------------------------------------------------------------------------


def _rejections(fleet: Plain, now: float) -> Iterator[MeshFinding]:
    """Yield what rejecting proxies say, and the objects that cause it."""
    rows, total = [row for row in fleet["unhealthy"] if row["state"] == "refused"], fleet["refused"]
    if not rows:
        return
    first = rows[0]
    types = dict.fromkeys(name for row in rows for name in row["error_types"])
    since = min((row["error_since"] or now for row in rows), default=now)
    others: tuple[Part, ...] = ()
    if total > 1:
        text = number_of(total - 1, "other proxy", "other proxies")
        others = (" and ", ViewLink(text, "#/proxies?state=refused"))
    causes = {_key(ref): ref for row in rows for ref in row["causes"]}
    rest = f" and {number_of(len(causes) - 1, 'other object')}" if len(causes) > 1 else ""
    causing = (object_link(next(iter(causes.values()))), rest) if causes else ()
    yield MeshFinding(
        "bad",
        (
            proxy_link(first),
            *others,
            f" {rejects(total, types)} ",
            Moment(since, "since"),
            f": {cut(_error_of(first), _LONGEST_ERROR)}" if first["error"] else "",
            *(("; caused by ", *causing) if causing else ()),
            ".",
        ),
        total,
    )


def _error_of(row: Plain) -> str:
    """Return the error of a proxy in Envoy's words, without the name of the type if there is only one."""
    error: str = row["error"]
    return error.removeprefix(f"{row['error_types'][0]}: ") if len(row["error_types"]) == 1 else error


def _key(one: Plain) -> tuple[str, ...]:
    return one["kind"], one["namespace"], one["name"]


def _silent(fleet: Plain) -> Iterator[MeshFinding]:
    """Yield that proxies are not responding."""
    count, total = fleet["stale"], fleet["proxies"]
    first = next((row for row in fleet["unhealthy"] if row["state"] == "stale"), None)
    if not count:
        return
    since: tuple[Part, ...] = (" ", Moment(first["waits_since"], "since")) if first is not None else ()
    level: FindingLevel = "bad" if count > MANY * total else "warn"
    if count == 1 and first is not None:
        parts: tuple[Part, ...] = (proxy_link(first), f", one of {total:,} proxies, {not_responding(1)}", *since, ".")
    else:
        link = ViewLink(f"{count:,} of {number_of(total, 'proxy', 'proxies')}", "#/proxies?state=stale")
        parts = (link, f" {not_responding(count)}", *((", the first", *since) if since else ()), ".")
    yield MeshFinding(level, parts, count)


def _delivery(fleet: Plain, changes: Sequence[Plain]) -> Iterator[MeshFinding]:
    """Yield that a change is being delivered, unless proxies are known to delay it."""
    for change in changes:
        total, done = change["proxies"] - change.get("unchanged", 0), change.get("acknowledged", 0)
        if not change["done"] and done < total and not fleet["stale"]:
            text = (
                f" is being delivered: {done:,} of the {number_of(total, 'proxy', 'proxies')} that it affected have it."
            )
            yield MeshFinding("busy", (ViewLink("A change", "#/changes"), text))
            return


def _calm(fleet: Plain, services: int) -> MeshFinding:
    """Return that nothing is wrong."""
    total, current = fleet["proxies"], fleet["synced"]
    if not total:
        return MeshFinding(
            "note", ("No proxy is connected." if services else "There are no services and no proxies yet.",)
        )
    who = "The only proxy is" if total == 1 else f"All {total:,} proxies are"
    text = (
        f"{who} up to date"
        if current == total
        else f"{current:,} of {number_of(total, 'proxy is', 'proxies are')} up to date"
    )
    return MeshFinding("ok", (f"{text}, and there are no errors.",))


# -- objects -----------------------------------------------------------------------------------------------------------


def _errors(problems: Plain) -> Iterator[MeshFinding]:
    """Yield the first errors of objects, those that make requests fail first, and the number of the others."""
    errors, total = [one for one in problems["items"] if one["severity"] == "error"], problems["counts"]["errors"]
    others = sorted((one for one in errors if one["code"] not in _APART), key=lambda one: not one.get("fails"))
    for one in others[:MOST]:
        fails = one.get("fails", False)
        yield MeshFinding("bad", tuple(_failure(one) if fails else _error(one)), 1, fails)
    if rest := len(others[MOST:]) + max(0, total - len(errors)):
        link = ViewLink(f"{number_of(rest, 'more error')} in objects", "#/problems?severity=error")
        yield MeshFinding("bad", (link, "."), 0)


def _failure(problem: Plain) -> Iterator[Part]:
    """Yield the sentence about an error that makes requests fail.

    The effect on requests at the end of a message about a route is said first, with the hosts.
    """
    message, effect = problem["message"], problem["effect"]
    if problem["code"] == UNREADY:
        yield f"{cut(message, _LONGEST_MESSAGE)} ("
    else:
        cause = message.rpartition(", so ")[0] or message
        yield f"{effect[:1].upper()}{effect[1:]}: {cut(cause, _LONGEST_MESSAGE)} ("
    yield _subject(problem)
    yield ")."


def _error(problem: Plain) -> Iterator[Part]:
    yield _subject(problem)
    at = f" at {problem['path']}" if problem.get("path") else ""
    effect = f", so {problem['effect']}" if problem.get("effect") else ""
    yield f" has an error{at}: {cut(problem['message'], _LONGEST_MESSAGE)}{effect}."


def _subject(problem: Plain) -> Part:
    """Return a link to the object with a problem, or the name of the file."""
    if not problem.get("kind"):
        return str(problem.get("file") or "A file")
    return object_link({"group": "", "namespace": "", **problem}, problem.get("path", ""))


def _certificates(certificates: Sequence[Plain], now: float) -> Iterator[MeshFinding]:
    """Yield that certificates that are used have expired, or expire soon."""
    used = [one for one in certificates if one["usedBy"] or not one["name"].startswith("Secret ")]
    expired = [one for one in used if one["ends"] < now]
    ending = [one for one in used if now <= one["ends"] < now + SOON]
    if len(expired) == 1:
        moment = Moment(expired[0]["ends"], "for")
        text = " ago, so clients that verify it do not connect."
        yield MeshFinding("bad", (*_certificate_link(expired), " expired ", moment, text), 1, True)
    elif expired:
        text = " have expired, so clients that verify them do not connect."
        yield MeshFinding("bad", (*_certificate_link(expired), text), len(expired), True)
    if ending:
        moment = Moment(min(one["ends"] for one in ending), "in")
        text = " expires in " if len(ending) == 1 else " expire within a week, the first in "
        yield MeshFinding("warn", (*_certificate_link(ending), text, moment, "."))


def _certificate_link(certificates: Sequence[Plain]) -> tuple[Part, ...]:
    if len(certificates) == 1:
        return "The certificate of ", ViewLink(certificates[0]["name"], "#/certificates")
    return (ViewLink(number_of(len(certificates), "certificate"), "#/certificates"),)


def _faults(faults: Sequence[InjectedFault]) -> Iterator[MeshFinding]:
    """Yield that VirtualServices inject faults."""
    if len(faults) == 1:
        yield MeshFinding("warn", (object_link(plain_ref(faults[0].object)), f" {faults[0].text}."), 1)
    elif faults:
        links = [part for fault in faults[:3] for part in (", ", object_link(plain_ref(fault.object)))][1:]
        rest = f" and {len(faults) - 3:,} more" if len(faults) > 3 else ""
        yield MeshFinding("warn", (*links, f"{rest} inject faults into requests."), len(faults))

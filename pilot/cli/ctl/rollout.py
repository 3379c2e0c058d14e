"""Follows changes of objects on all replicas of a control plane until the proxies have acknowledged them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import default_namespace
from pilot.cli.ctl.object_reference import ObjectArgument, parse_objects
from pilot.cli.ctl.output import TextTable
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.workload_name import KINDS, workload_kind
from pilot.config.catalogue import CATALOGUE

_INTERVALS, _SHARE = (0.03, 0.1), 4
"""Minimum and maximum number of seconds between two requests to each replica, and their ratio to the duration of a
request. Replicas with few proxies respond fast and are asked often."""
_RECENT = 3
"""Number of requests whose shortest duration counts. A longer one has waited for something else."""
PENDING = ("starting", "waiting", "sent", "unknown")
"""States of proxies that may still acknowledge the change."""
_KUBECTL = {"wait": "wait --for=condition=Available"}
"""Commands of kubectl for workloads, if they differ from those of pilotctl."""
HEAD = ("OBJECT", "REPLICA", "GENERATION", "AFFECTED", "ACKNOWLEDGED", "REJECTED", "PENDING", "DISCONNECTED", "STATE")


class Target(NamedTuple):
    """A version of an object. The query selects it on the page rollout.

    `api_version` is that of the object in a file, or "" if it is not from a file.
    """

    query: dict[str, str]
    api_version: str = ""

    def __str__(self) -> str:
        return "/".join(self.query[field] for field in ("kind", "namespace", "name") if self.query.get(field))


def named_targets(arguments: Sequence[str], namespace: str) -> list[Target]:
    """Return the targets that arguments name. `namespace` is that of all names, or "".

    Raise BadParameter as `parse_objects` does, and UsageError if one is a workload, such as a Deployment.
    """
    references = parse_objects(arguments, namespace)
    for one in references:
        _refuse_workload(one)
    return [Target({name: text for name, text in _place(one)._asdict().items() if text}) for one in references]


def _place(one: ObjectArgument) -> ObjectArgument:
    """Return the argument with the default namespace, unless it has another one or its kind has none."""
    kinds = CATALOGUE.named(one.kind)
    is_namespaced = any(kind.namespaced for kind in kinds) or not kinds
    return one if one.namespace or not is_namespaced else one._replace(namespace=default_namespace())


def _refuse_workload(one: ObjectArgument) -> None:
    """Raise UsageError with the command of kubectl if the object is a workload that has no mesh configuration."""
    kind = workload_kind(one.kind)
    if kind not in KINDS or CATALOGUE.named(one.kind):
        return
    command = click.get_current_context().command_path.partition(" ")[2]
    place = f" -n {one.namespace}" if one.namespace else ""
    instead = f"kubectl {_KUBECTL.get(command, command)} {kind}/{one.name}{place}"
    raise click.UsageError(
        f"{command} shows the delivery of mesh configuration, such as virtualservice/shop/cart; "
        f"for {KINDS[kind].name}s use {instead}"
    )


class Rollout(NamedTuple):
    """The delivery of a target on one replica, as returned by the page rollout."""

    target: Target
    replica: str
    page: dict[str, Any]

    @property
    def is_delivered(self) -> bool:
        return bool(self.page["delivered"])

    @property
    def state(self) -> str:
        """Return the state of the delivery in a word or two."""
        if self.page["ignored"]:
            return "IGNORED"
        if not self.page["current"]:
            return "NOT READ YET"
        if self.page["errors"]:
            return "HAS ERRORS"
        if self.page["refused"]:
            return "REJECTED" if self._is_cause else "INCOMPLETE"
        if self.is_delivered:
            return "UP TO DATE"
        lacking = self.page["lacking"]
        return "NOT RESPONDING" if lacking and all(proxy.get("silent") for proxy in lacking) else "IN PROGRESS"

    @property
    def _is_cause(self) -> bool:
        """Return whether the object may be a cause of the rejections: one has no known cause, or the object is one."""
        causes = [one.get("causes") for one in self.page["lacking"] if one["state"] == "refused"]
        own = (self.page["kind"], self.page["namespace"], self.page["name"])
        return not all(causes) or any(
            own == (c["kind"], c["namespace"], c["name"]) for row in causes for c in row or ()
        )

    @property
    def is_final(self) -> bool:
        """Return whether waiting changes nothing: every proxy has responded, and one has rejected the change."""
        page = self.page
        pending = any(page[state] for state in PENDING)
        return self.is_delivered or bool(page["current"] and page["refused"] and not pending)


class Failure(CommandError):
    """The change was not delivered in time or, if `is_rejected`, a proxy rejected it. The message lists the reasons."""

    def __init__(self, message: str, is_rejected: bool) -> None:
        super().__init__(message)
        self.is_rejected = is_rejected


def read_rollouts(client: Replicas, targets: Sequence[Target], proxy: str = "") -> list[Rollout]:
    """Return the delivery of each target on each replica. Raise CommandError if a replica does not answer."""
    rollouts = []
    client.missing.clear()
    for target in targets:
        answers = client.each("rollout", **target.query, **({"proxy": proxy} if proxy else {}))
        rollouts += [Rollout(target, answer.replica.name, answer.value) for answer in answers]
    if client.missing:
        missing = "; ".join(f"{name}: {reason}" for name, reason in client.missing.items())
        client.missing.clear()
        raise CommandError(f"a replica does not answer, so nothing is known about its proxies: {missing}")
    if proxy and not any(rollout.page["connected"] for rollout in rollouts):
        raise CommandError(f"no connected proxy matches {proxy!r}")
    return rollouts


def wait_until_delivered(
    client: Replicas,
    targets: Sequence[Target],
    seconds: float,
    proxy: str = "",
    complete: Callable[[Target], Target] = lambda target: target,
) -> list[Rollout]:
    """Return the deliveries once all of them are complete on all replicas.

    `complete` adds the version to a target whose object has a generation, which the control plane has from an API
    server. Raise Failure if a proxy has rejected a change, or after `seconds`.
    """
    deadline = time.monotonic() + seconds
    current, is_first = list(targets), True
    durations: deque[float] = deque(maxlen=_RECENT)
    while True:
        started = time.monotonic()
        error: CommandError | None = None
        rollouts: list[Rollout] = []
        try:
            rollouts = read_rollouts(client, current, proxy)
        except CommandError as failure:  # later, a replica may have restarted
            if is_first:
                raise
            error = failure
        is_first = False
        versioned = {str(rollout.target) for rollout in rollouts if rollout.page["generation"]}
        completed = [complete(target) if str(target) in versioned else target for target in current]
        if completed != current:
            current = completed
            continue
        if rollouts and all(rollout.is_delivered for rollout in rollouts):
            return rollouts
        final = rollouts and all(rollout.is_final for rollout in rollouts)
        if final or time.monotonic() >= deadline:
            message = "; ".join(_reasons(rollouts, seconds, bool(final))) if rollouts else str(error)
            raise Failure(message, bool(final))
        durations.append(time.monotonic() - started)
        time.sleep(min(max(_INTERVALS[0], _SHARE * min(durations)), _INTERVALS[1]))


def _reasons(rollouts: Iterable[Rollout], seconds: float, is_final: bool) -> Iterator[str]:
    """Yield the reasons for which each change is not delivered."""
    for rollout in rollouts:
        if not rollout.is_delivered:
            yield f"{rollout.target} at {rollout.replica}: {'; '.join(_reasons_of(rollout, seconds, is_final))}"


def _reasons_of(rollout: Rollout, seconds: float, is_final: bool) -> Iterator[str]:
    page = rollout.page
    yield from describe_lacking(page, ("refused",)) if page["current"] else ()
    if page["ignored"]:
        yield "the control plane ignores the namespace (discoverySelectors)"
    elif not page["current"] and rollout.target.query.get("absent"):
        yield f"the object still exists after {seconds:g}s; --for=delete waits until it is deleted"
    elif not page["current"] and not page["exists"]:
        yield f"the control plane has no such object after {seconds:g}s{_meant(page)}"
    elif not page["current"]:
        of_file = "fingerprint" in rollout.target.query
        what = "has another version than the file" if of_file else "does not have this version"
        fix = "; see pilotctl problems" if page["errors"] else ": apply the file first" if of_file else ""
        yield f"the control plane {what} after {seconds:g}s{fix}"
    elif not is_final:
        number = sum(page[state] for state in PENDING)
        proxies = "1 proxy has" if number == 1 else f"{number} proxies have"
        lines = ", ".join(describe_lacking(page, PENDING)[:5])
        yield f"{proxies} not acknowledged it after {seconds:g}s: {lines}"


def describe_lacking(page: dict[str, Any], states: Sequence[str] = ()) -> list[str]:
    """Return a line about each listed proxy that lacks the change, and one about those that are not listed.

    If `states` are given, only proxies in these states are included.
    """
    lines = [f"{one['proxy']} {one['reason']}" for one in page["lacking"] if not states or one["state"] in states]
    more = sum(page[state] for state in states or ("refused", *PENDING)) - len(lines)
    return [*lines, *([f"and {more} more"] if more > 0 else [])]


def refuse_unknown(rollouts: Iterable[Rollout]) -> None:
    """Raise CommandError if a target exists on no replica."""
    pages: dict[str, list[dict[str, Any]]] = {}
    for rollout in rollouts:
        pages.setdefault(str(rollout.target), []).append(rollout.page)
    for target, answers in pages.items():
        if not any(page["exists"] or page["ignored"] for page in answers):
            raise CommandError(f"{target}: the control plane has no such object{_meant(answers[0])}")


def _meant(page: dict[str, Any]) -> str:
    """Return a hint on an object that does not exist."""
    names = " or ".join(f"{page['kind'].lower()}/{name}" for name in page.get("similar", ()))
    return f"; did you mean {names}?" if names else "; pilotctl problems lists objects that were rejected"


def rollout_table(rollouts: Sequence[Rollout]) -> TextTable:
    """Return a table with a row for each object and replica."""
    rows = [
        (
            *(rollout.target, rollout.replica, page["generation"] or "-", page["affected"], page["acknowledged"]),
            *(page["refused"], sum(page[state] for state in PENDING), page["disconnected"], rollout.state),
        )
        for rollout in rollouts
        for page in (rollout.page,)
    ]
    return TextTable(HEAD, rows)

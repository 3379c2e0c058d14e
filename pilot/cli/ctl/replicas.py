"""The replicas of a control plane. Commands ask all of them at once and merge their answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

import click

from pilot.cli.ctl.client import (
    AmbiguousProxyError,
    CommandError,
    OtherControlPlaneError,
    PageClient,
    UnknownProxyError,
)
from pilot.cli.ctl.connected_proxies import describe_missing_namespace, describe_missing_proxy

Result = TypeVar("Result")
GRACE = 1.0
"""Minimum number of seconds that the other replicas have after the first one has answered."""
_FACTOR = 2.0
"""Time of the other replicas, as a multiple of the time of the first one: large answers take all of them longer."""
_ANSWERS = (UnknownProxyError, AmbiguousProxyError)
"""Errors that a replica reports within the time of an answer."""
INCOMPLETE = 1
"""Exit status if the answer of a replica is missing."""
_STATUS = "pilotctl.status"


class ReplicaAnswer(NamedTuple, Generic[Result]):
    """The answer of one replica."""

    replica: PageClient
    value: Result


class Replicas:
    """Client for the debug pages of all replicas of a control plane.

    `missing` maps the name of each replica that has not answered to the reason. If none answers, requests raise
    CommandError. A Pod that answers as another control plane is no replica: the first request that asks all leaves it
    out, and `others` maps its name to the message.
    """

    def __init__(self, replicas: Sequence[PageClient]) -> None:
        self.replicas = tuple(replicas)
        self.missing: dict[str, str] = {}
        self.others: dict[str, str] = {}

    @property
    def address(self) -> str:
        """Return the addresses of the replicas, for messages."""
        return ", ".join(replica.name for replica in self.replicas)

    def get(self, page: str, **query: str) -> Any:
        """Return the parsed JSON of a page below /debug, merged over all replicas.

        Lists, and those of the clients in a page, are joined without duplicates. The answer about a proxy is that of
        the replica to which it is connected. Any other page is the same everywhere, so it is that of one replica.
        """
        if len(self.replicas) == 1:
            return self.replicas[0].get(page, **query)
        if query.get("proxyID"):
            replica, name = self.find_proxy(query["proxyID"], query.get("namespace", ""))
            return replica.get(page, **query | {"proxyID": name})
        return _merge([answer.value for answer in self.each(page, **query)])

    def each(self, page: str, **query: str) -> list[ReplicaAnswer[Any]]:
        """Return the parsed JSON of a page below /debug for each replica that answers."""
        return self.ask(lambda replica: replica.get(page, **query))

    def text(self, path: str, **query: str) -> str:
        """Return the response of one replica for a path: that of the proxy in the query, or the first to answer."""
        if len(self.replicas) == 1:
            return self.replicas[0].text(path, **query)
        if query.get("proxyID"):
            replica, name = self.find_proxy(query["proxyID"], query.get("namespace", ""))
            return replica.text(path, **query | {"proxyID": name})
        return self.ask(lambda replica: replica.text(path, **query))[0].value

    def ask(self, request: Callable[[PageClient], Result]) -> list[ReplicaAnswer[Result]]:
        """Send a request to all replicas at once, and return the answers in the order of the replicas.

        After the first answer, the others have limited time. Raise CommandError if no replica answers.
        """
        answers, errors = self._outcomes(request)
        if not answers:
            raise next(iter(errors.values()))
        self.missing |= {name: error.message for name, error in errors.items()}
        return answers

    def find_proxy(self, name: str, namespace: str = "") -> tuple[PageClient, str]:
        """Return the replica to which a proxy is connected, and the ID of the proxy.

        Raise CommandError if no proxy or several proxies have the name.
        """
        query = {"proxyID": name} | ({"namespace": namespace} if namespace else {})
        answers, errors = self._outcomes(
            lambda replica: replica.get("syncz", **query),
            lambda proxies: any(proxy["proxy"] == name for proxy in proxies),
        )
        matches = [(answer.replica, str(proxy["proxy"])) for answer in answers for proxy in answer.value]
        exact = [match for match in matches if match[1] == name]
        if matches and (exact or "/" in name or len({proxy for _, proxy in matches}) == 1):
            return (exact or matches)[0]
        ambiguous = [error for error in errors.values() if isinstance(error, AmbiguousProxyError)]
        if ambiguous or matches:
            names = ", ".join(sorted({proxy for _, proxy in matches}))
            raise ambiguous[0] if ambiguous else AmbiguousProxyError(f"{name!r} matches several proxies: {names}")
        silent = {r: error.message for r, error in errors.items() if not isinstance(error, UnknownProxyError)}
        if len(silent) == len(self.replicas):
            raise next(iter(errors.values()))
        self.missing |= silent
        place = f" in namespace {namespace}" if namespace else ""
        remark = describe_missing_proxy(name, namespace, self.get("connections"))
        raise UnknownProxyError(f"no connected proxy{place} matches {name!r} at any replica that answers{remark}")

    def describe_missing_namespace(self, namespace: str | None) -> str:
        """Return a remark on a namespace without proxies, or "" if none is given. See `connected_proxies`."""
        return describe_missing_namespace(namespace, self.get("connections")) if namespace else ""

    def notes(self) -> list[str]:
        """Return a line for each Pod that was left out, and for each replica whose answer is missing."""
        missing = [f"! replica {name} is missing: {reason}" for name, reason in self.missing.items()]
        return [*(f"! {message}" for message in self.others.values()), *missing]

    def _outcomes(
        self, request: Callable[[PageClient], Result], is_enough: Callable[[Result], bool] = lambda _: False
    ) -> tuple[list[ReplicaAnswer[Result]], dict[str, CommandError]]:
        """Return the answers, and the errors by the name of the replica. After an answer that is enough, do not wait
        for others."""
        queue: SimpleQueue[tuple[int, Result | CommandError]] = SimpleQueue()
        for number, replica in enumerate(self.replicas):
            # As a daemon, a thread that waits for a replica that hangs does not delay the end of the process.
            threading.Thread(target=_send, args=(request, replica, number, queue), daemon=True).start()
        results, errors = dict[int, Result](), dict[str, CommandError]()
        start, seconds = time.monotonic(), None
        while len(results) + len(errors) < len(self.replicas):
            elapsed = time.monotonic() - start
            try:
                number, outcome = queue.get(timeout=None if seconds is None else max(0.0, seconds - elapsed))
            except Empty:
                break
            if isinstance(outcome, CommandError):
                errors[self.replicas[number].name] = outcome
            else:
                results[number] = outcome
                if is_enough(outcome):
                    break
            is_answer = not isinstance(outcome, CommandError) or isinstance(outcome, _ANSWERS)
            if seconds is None and is_answer:
                taken = time.monotonic() - start
                seconds = taken + max(GRACE, _FACTOR * taken)
        for number, replica in enumerate(self.replicas):
            if number not in results and replica.name not in errors:
                seconds = time.monotonic() - start
                errors[replica.name] = CommandError(f"no response within {seconds:.1f} s, while others have answered")
        answers = [ReplicaAnswer(self.replicas[number], results[number]) for number in sorted(results)]
        self._leave_out_others(errors)
        return answers, errors

    def _leave_out_others(self, errors: dict[str, CommandError]) -> None:
        """Leave out the Pods of other control planes, and their errors, unless there would be no replica."""
        others = {name: error.message for name, error in errors.items() if isinstance(error, OtherControlPlaneError)}
        replicas = tuple(replica for replica in self.replicas if replica.name not in others)
        if others and replicas:
            self.replicas = replicas
            self.others |= others
            for name in others:
                del errors[name]


def report_missing(control_plane: Replicas) -> None:
    """Name the Pods that were left out on standard error, and the replicas whose answers are missing.

    If answers are missing, the command fails.
    """
    for note in control_plane.notes():
        click.echo(note, err=True)
    if control_plane.missing:
        click.get_current_context().meta[_STATUS] = INCOMPLETE


def exit_status(ctx: click.Context) -> int:
    """Return the exit status of a command that has ended without an error."""
    status: int = ctx.meta.get(_STATUS, 0)
    return status


def _send(request: Callable[[PageClient], Result], replica: PageClient, number: int, queue: SimpleQueue[Any]) -> None:
    try:
        queue.put((number, request(replica)))
    except CommandError as error:
        queue.put((number, error))
    except Exception as error:  # a thread that ends without an outcome would never be counted
        queue.put((number, CommandError(f"{replica.name}: {error or type(error).__name__}")))


def _merge(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, list):
        return _distinct(item for value in values for item in value)
    if isinstance(first, Mapping) and "totalClients" in first:  # without clients, their list is absent
        clients = _distinct(client for value in values for client in value.get("clients", ()))
        return {"totalClients": len(clients)} | ({"clients": clients} if clients else {})
    return first


def _distinct(items: Iterable[Any]) -> list[Any]:
    return list({json.dumps(item, sort_keys=True): item for item in items}.values())

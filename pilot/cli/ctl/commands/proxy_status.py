"""pilotctl proxy-status: show whether proxies are in sync, and compare the configuration of one with its Envoy's."""

from __future__ import annotations

import difflib
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import click
from rich.text import Text

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.completions import complete_namespaces, complete_proxies
from pilot.cli.ctl.envoy import EnvoyDump
from pilot.cli.ctl.output import FORMATS, CommandResult, Part, TextTable, watch
from pilot.cli.ctl.proxy import ProxyTarget, describe_proxy, find_status, with_envoy, wrong_envoy
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.request_texts import ANY_NAMESPACE
from pilot.lib.text import one_line
from pilot.lib.xds_types import BY_SHORT_NAME, find_type, short_name

_TYPES = ("cds", "lds", "eds", "rds")
_COMPARED = {"Clusters": "cds", "Listeners": "lds", "Routes": "rds"}
SECONDS = 1.0
_UNUSED = "NOTHING REQUESTED"
_ORDER = ("ERROR", "STALE", _UNUSED, "NOT SENT", "SYNCED")
_STATES = {name.lower().replace(" ", "-"): name for name in _ORDER}
_SHOWN_NAMES = 3
"""Number of proxies that are named for the same reason."""
_SHOWN_REASONS = 20
Status = dict[str, Any]
"""The sync status of a proxy, from the debug page syncz."""
_CONTEXT_LINES = 7  # context lines around a difference


@click.command()
@click.argument("proxy", required=False, shell_complete=complete_proxies)
@click.option(
    "-n",
    "--namespace",
    type=ANY_NAMESPACE,
    default="",
    help="only proxies in this namespace",
    shell_complete=complete_namespaces,
)
@click.option(
    "--state",
    "states",
    type=click.Choice(tuple(_STATES), case_sensitive=False),
    multiple=True,
    help="only proxies that are in this state; may be repeated",
)
@click.option("-w", "--watch", "repeat", is_flag=True, help="refresh every second until Ctrl-C")
@with_output
@with_envoy
@with_client
def proxy_status(
    client: Replicas,
    proxy: str | None,
    namespace: str,
    states: tuple[str, ...],
    repeat: bool,
    envoy: EnvoyDump | None,
) -> CommandResult:
    """Show whether each proxy has acknowledged its configuration. The proxies in the worst state come first.

    The state of a resource type is ERROR if the proxy rejected it, STALE if the proxy has not acknowledged it, NOT SENT
    if there was nothing to send, or SYNCED. The state of a proxy is the worst of these, or NOTHING REQUESTED if it is
    connected but does not subscribe to any type.

    With PROXY (POD.NAMESPACE or part of it), show the state of each resource type. With PROXY and --envoy or --file,
    compare the control plane's configuration with Envoy's.
    """
    if envoy is not None:
        if not proxy:
            raise click.UsageError("specify the PROXY to compare the Envoy with")
        return _comparison(client, proxy, envoy)
    if repeat:
        if click.get_current_context().params["form"] != FORMATS[0]:
            raise click.UsageError("--watch shows a table: omit --output")
        watch(_Refreshed(lambda: _watched(client, proxy, namespace, states)), SECONDS)
        click.get_current_context().exit()
    return _status(client, proxy, namespace, states)


class _Refreshed:
    """Reads the status again on each call. If the control plane does not respond, the last status is repeated."""

    def __init__(self, read: Callable[[], list[Part]]) -> None:
        self._read, self._time = read, ""
        self._last: list[Part] = []

    def __call__(self) -> list[Part]:
        try:
            self._last, now = self._read(), time.strftime("%H:%M:%S")
        except CommandError as error:
            if not self._time:
                raise
            return [Text(error.message, "bold red"), f"The status at {self._time} was:", *self._last]
        self._time = now
        return [now, *self._last]


def _status(client: Replicas, proxy: str | None, namespace: str, states: tuple[str, ...]) -> CommandResult:
    if proxy:
        statuses = client.get("syncz", proxyID=proxy, namespace=namespace)
        return CommandResult(statuses, _details(client, statuses))
    proxies = client.get("syncz", namespace=namespace)
    if not proxies:
        place = f" in the namespace {namespace!r}" if namespace else ""
        remark = client.describe_missing_namespace(namespace)
        return CommandResult([], [f"No proxy{place} is connected to {client.address}{remark}."])
    names = {_STATES[state] for state in states} or set(_STATES.values())
    selection = sorted((p for p in proxies if worst_state(p) in names), key=lambda p: _ORDER.index(worst_state(p)))
    return CommandResult(selection, _parts(selection, proxies))


def _watched(client: Replicas, proxy: str | None, namespace: str, states: tuple[str, ...]) -> list[Part]:
    """Return the status, and the replicas that have not answered this time."""
    client.missing.clear()
    parts = list(_status(client, proxy, namespace, states).parts)
    return [*parts, *(Text(note, "yellow") for note in client.notes())]


def _parts(selection: list[Status], proxies: list[Status]) -> Iterator[Part]:
    """Yield the table of the listed proxies, why they are not in sync, and the number of proxies in each state."""
    if selection:
        types = _columns(selection)
        head = ("NAME", "CLUSTER", "TYPE", *(name.upper() for name in types), "VERSION")
        yield TextTable(head, [_row(proxy, types) for proxy in selection])
    reasons: dict[StatusReason, dict[str, str]] = {}
    for proxy in selection:
        for reason, since in _reasons(proxy):
            reasons.setdefault(reason, {})[proxy["proxy"]] = since
    for reason, times in itertools.islice(reasons.items(), _SHOWN_REASONS):
        yield f"{_some(list(times))} {reason.text(min(times.values()))}"
    if len(reasons) > _SHOWN_REASONS:
        yield f"… and {len(reasons) - _SHOWN_REASONS} more reasons; pilotctl proxy-status PROXY shows those of a proxy"
    counts = Counter(map(worst_state, proxies))
    total = f"{len(proxies)} {'proxy' if len(proxies) == 1 else 'proxies'}"
    yield f"{total}: {', '.join(f'{counts[state]} {state}' for state in _ORDER if counts[state])}"


def _some(names: list[str]) -> str:
    """Return some names, and the number of the others."""
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"{', '.join(names[:_SHOWN_NAMES])}{more}"


def _columns(proxies: Iterable[Status]) -> tuple[str, ...]:
    """Return the types that have a column: those of sidecars, and the others that any of the proxies subscribes to."""
    subscribed = {
        short_name(url) for proxy in proxies for url in proxy.get("resources", {}) if find_type(url).is_answered
    }
    return (*_TYPES, *(name for name in BY_SHORT_NAME if name in subscribed and name not in _TYPES))


def _row(proxy: Status, types: Iterable[str]) -> list[str]:
    by_name: dict[str, list[str]] = {}
    for url, resource in proxy.get("resources", {}).items():
        by_name.setdefault(short_name(url), []).append(state(resource))
    states = [min(by_name[name], key=_ORDER.index) if name in by_name else "-" for name in types]
    return [
        proxy["proxy"],
        proxy.get("cluster_id", ""),
        proxy.get("proxy_type", ""),
        *states,
        proxy.get("istio_version", ""),
    ]


def worst_state(proxy: Status) -> str:
    """Return the worst state of a proxy's resource types, or that it has requested none."""
    return min(map(state, proxy.get("resources", {}).values()), key=_ORDER.index, default=_UNUSED)


def state(resource: dict[str, Any] | None) -> str:
    """Return the sync state of a resource type, or "-" if the proxy does not subscribe to it."""
    if resource is None:
        return "-"
    if resource.get("lastError"):
        return "ERROR"
    if not resource.get("sent"):
        return "NOT SENT"
    return "SYNCED" if resource["sent"] == resource.get("acked") else "STALE"


def _details(client: Replicas, proxies: Iterable[dict[str, Any]]) -> Iterator[str | TextTable]:
    for number, proxy in enumerate(proxies):
        yield from [""] if number else []
        kind, istio_version = proxy.get("proxy_type", ""), proxy.get("istio_version") or "no version"
        yield f"{proxy['proxy']} ({kind}, {istio_version}) in {proxy.get('cluster_id', '')}"
        resources = sorted(proxy.get("resources", {}).items())
        rows = [
            (short_name(url).upper(), state(r), r.get("sent") or "-", r.get("acked") or "-", r.get("sentTime") or "-")
            for url, r in resources
        ]
        yield TextTable(("TYPE", "STATE", "SENT", "ACKNOWLEDGED", "TIME"), rows)
        rejections = _explained(client, proxy) if worst_state(proxy) == "ERROR" else []
        delays = [reason.text(since) for reason, since in (*_delays(proxy), *_absence(proxy))]
        yield from (f"{proxy['proxy']} {text}" for text in (*rejections, *delays))


def _explained(client: Replicas, proxy: Status) -> list[str]:
    """Return the rejections of a proxy with their reasons, or only Envoy's errors if the reasons cannot be read."""
    try:
        return [str(text) for text in client.get("describe", proxyID=proxy["proxy"])["rejections"]]
    except (CommandError, KeyError):  # the proxy has disconnected, or the control plane is older
        return [reason.text(since) for reason, since in _rejections(proxy)]


class StatusReason(NamedTuple):
    """A reason for which proxies are not in sync: what they did, and Envoy's error or ""."""

    action: str
    error: str = ""

    def text(self, since: str) -> str:
        """Return the reason as a phrase, with an RFC 3339 time or ""."""
        moment = f" since {since[:19].replace('T', ' ')} UTC" if since else ""
        return f"{self.action}{moment}{f': {self.error}' if self.error else ''}"


def _reasons(proxy: Status) -> Iterator[tuple[StatusReason, str]]:
    """Yield why the proxy is not in sync, for each resource type that it rejected or has not acknowledged, and since
    when."""
    yield from _rejections(proxy)
    yield from _delays(proxy)
    yield from _absence(proxy)


def _rejections(proxy: Status) -> Iterator[tuple[StatusReason, str]]:
    for url, resource in sorted(proxy.get("resources", {}).items()):
        if resource.get("lastError"):
            reason = StatusReason(f"rejected {short_name(url).upper()}", one_line(resource["lastError"]))
            yield reason, resource.get("rejectedSince", "")


def _delays(proxy: Status) -> Iterator[tuple[StatusReason, str]]:
    for url, resource in sorted(proxy.get("resources", {}).items()):
        if state(resource) == "STALE":
            yield StatusReason(f"has not acknowledged {short_name(url).upper()}"), resource.get("sentTime", "")


def _absence(proxy: Status) -> Iterator[tuple[StatusReason, str]]:
    if worst_state(proxy) == _UNUSED:
        yield StatusReason("is connected, but has not requested any configuration"), ""


def _comparison(client: Replicas, proxy: str, envoy: EnvoyDump) -> CommandResult:
    """Return the difference between the control plane's configuration of a proxy and Envoy's, as a unified diff per
    type."""
    status = find_status(client, proxy)
    if status["proxy"] != envoy.proxy_id():
        raise wrong_envoy(envoy.proxy_id(), status["proxy"])
    theirs = envoy.node().get("metadata", {}).get("CLUSTER_ID")
    if theirs and status.get("cluster_id", theirs) != theirs:
        raise CommandError(
            f"this Envoy is in cluster {theirs}, and {status['proxy']} is in cluster {status['cluster_id']}"
        )
    target = ProxyTarget(client, proxy, None)
    diffs = {
        title: _difference(title, target.resources(name), envoy.resources(name, dynamic=True))
        for title, name in _COMPARED.items()
    }
    heading = [describe_proxy(status)]
    return CommandResult(
        {title: "\n".join(lines) for title, lines in diffs.items()}, itertools.chain(heading, _diff_lines(diffs))
    )


def _diff_lines(diffs: dict[str, list[str]]) -> Iterator[str]:
    for title, lines in diffs.items():
        yield f"{title} Don't Match" if lines else f"{title} Match"
        yield from lines


def _difference(title: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[str]:
    return list(
        difflib.unified_diff(
            _lines(ours), _lines(theirs), f"Istiod {title}", f"Envoy {title}", lineterm="", n=_CONTEXT_LINES
        )
    )


def _lines(resources: list[dict[str, Any]]) -> list[str]:
    plain = [
        _comparable({name: value for name, value in resource.items() if name != "@type"}) for resource in resources
    ]
    return json.dumps(
        sorted(plain, key=lambda r: str(r.get("name"))), indent=2, sort_keys=True, ensure_ascii=False
    ).splitlines()


def _comparable(value: Any) -> Any:
    """Return JSON data with integral floats converted to integers."""
    if isinstance(value, dict):
        return {name: _comparable(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_comparable(member) for member in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value

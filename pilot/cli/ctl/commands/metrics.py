"""pilotctl metrics: show the request rates and latencies of workloads, from Prometheus."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlencode

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import selected_cluster, with_cluster_options
from pilot.cli.ctl.command import with_output
from pilot.cli.ctl.connection import SYSTEM
from pilot.cli.ctl.forwarding import find_pod, forward
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.ctl.request_texts import ANY_NAMESPACE
from pilot.cli.http_request import AddressError, UnreachableError, parse_address, send
from pilot.lib.duration import parse_duration

SELECTOR, PORT = "app.kubernetes.io/name=prometheus", 9090
QUANTILES = (0.5, 0.9, 0.99)
_HEAD = ("WORKLOAD", "TOTAL RPS", "ERROR RPS", "P50 LATENCY", "P90 LATENCY", "P99 LATENCY")
Query = Callable[[str], float | None]
_NAME = re.compile(r"[\w-]+(\.[\w-]+)?", re.ASCII)


class Measurement(NamedTuple):
    """Requests and errors per second, and latencies in milliseconds, which are None without requests."""

    workload: str
    totalRPS: float
    errorRPS: float
    p50: float | None
    p90: float | None
    p99: float | None


@click.command()
@click.argument("workloads", nargs=-1, required=True, metavar="WORKLOAD[.NAMESPACE]…")
@click.option("-d", "--duration", default="1m", show_default=True, help="time over which rates are calculated")
@click.option(
    "-n",
    "--namespace",
    type=ANY_NAMESPACE,
    default="",
    help="namespace of workloads that are given without one (default: all)",
)
@click.option("-i", "--istioNamespace", "system", default=SYSTEM, show_default=True, help="namespace of Prometheus")
@click.option("--prometheus", "address", default="", metavar="URL", help="address of Prometheus, instead of its Pod")
@with_output
@with_cluster_options
def metrics(workloads: tuple[str, ...], duration: str, namespace: str, system: str, address: str) -> CommandResult:
    """Show the request rates and latencies of workloads, from Prometheus.

    WORKLOAD is the beginning of a name. The values are those that the proxies of the workloads report for the requests
    that they receive. Errors are responses with the status 4xx or 5xx. The Pod of Prometheus is found by its label.
    """
    window = _window(duration)
    for workload in workloads:
        if not _NAME.fullmatch(workload):
            raise click.UsageError(f"{workload!r} is not the name of a workload")
    query = _prometheus(address, system)
    names = [f"{name}.{namespace}" if namespace and "." not in name else name for name in workloads]
    results = [_measure(query, name, window) for name in names]
    rows = [
        (one.workload, f"{one.totalRPS:.3f}", f"{one.errorRPS:.3f}", *map(_milliseconds, one[3:])) for one in results
    ]
    return CommandResult([one._asdict() for one in results], [TextTable(_HEAD, rows)])


def _window(text: str) -> str:
    try:
        seconds = round(parse_duration(text).seconds)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--duration'") from error
    if seconds < 1:
        raise click.BadParameter(f"{text} is shorter than a second", param_hint="'--duration'")
    return f"{seconds}s"


def _prometheus(address: str, system: str) -> Query:
    """Return a function that evaluates a query, with the value None if there is no data."""
    if address:
        return lambda text: _query(address, text, lambda: "")
    ctx = click.get_current_context()
    cluster = selected_cluster(ctx)
    pod = str(find_pod(cluster, system, SELECTOR)["metadata"]["name"])
    port = forward(ctx, cluster).open(system, pod, PORT)
    return lambda text: _query(f"127.0.0.1:{port.port}", text, lambda: port.error)


def _query(address: str, text: str, reason: Callable[[], str]) -> float | None:
    try:
        url = parse_address(address, PORT)
        response = send(f"{url}/api/v1/query?{urlencode({'query': text})}")
    except AddressError as error:
        raise CommandError(f"--prometheus: {error}") from error
    except UnreachableError as error:
        raise CommandError(f"cannot reach Prometheus at {url}: {reason() or error}") from error
    try:
        answer = json.loads(response.text)
        results = answer["data"]["result"] if response.status == 200 else None
        value = float(results[0]["value"][1]) if results else None
    except (ValueError, LookupError, TypeError):
        raise CommandError(f"{url} is not Prometheus: invalid response to a query") from None
    if response.status != 200:
        raise CommandError(f"Prometheus rejected a query: {answer.get('error', response.reason)}")
    return None if value is None or math.isnan(value) else value


def _measure(query: Query, workload: str, window: str) -> Measurement:
    name, _, namespace = workload.partition(".")
    inside = f',destination_workload_namespace="{namespace}"' if namespace else ""
    selector = f'reporter="destination",destination_workload=~"{name}.*"{inside}'
    errors = f'{selector},response_code=~"[45][0-9]{{2}}"'
    requests, buckets = "istio_requests_total", "istio_request_duration_milliseconds_bucket"
    return Measurement(
        workload,
        query(f"sum(rate({requests}{{{selector}}}[{window}]))") or 0.0,
        query(f"sum(rate({requests}{{{errors}}}[{window}]))") or 0.0,
        *(query(f"histogram_quantile({q}, sum(rate({buckets}{{{selector}}}[{window}])) by (le))") for q in QUANTILES),
    )


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}ms"

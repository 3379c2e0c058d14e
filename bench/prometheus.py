"""Evaluate every expression of our alerts and dashboards in a real Prometheus, with a busy control plane.

    python bench/prometheus.py [--dashboard FILE …] [--seconds 40] [--shape S0] [--prometheus PATH] [--promtool PATH] [-v]

Proxies connect, one sends NACKs, valid and invalid configuration is written, certificates are requested with valid and
invalid tokens, and the webhooks are called. Prometheus scrapes every second. The left side of each alert's comparison
and every target of the dashboards (ours, and each Grafana FILE) is queried. One line is printed for each expression
without data, with the reason:

    not of a control plane    it uses metrics of machines or proxies
    no observation yet        its series appear with their first observation, which did not happen here
    NO DATA                   its series exist, but the expression selects none of them

The exit status is 1 if there is an expression of the last kind, or if a rule is invalid. `promtool` checks the rules,
and Prometheus evaluates them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import pathlib
import re
import ssl
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import grpc
import yaml
from envoy.service.discovery.v3 import discovery_pb2
from google.rpc import status_pb2

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from bench.static_mesh import ADS, SHAPES, TYPES, Shape, edit, make_object, run_proxy, write_mesh
from pilot.lib.metrics.metric_catalogue import CATALOGUE
from testing.clients.ads import EOF
from testing.clients.fleet import envoy_node
from testing.clients.secure_client import create_certificate, secure_channel
from testing.kube.webhooks import config_texts, pod, review
from testing.mesh.world import proxy
from testing.processes.process import ControlPlane, Process, eventually, free_port
from testing.security.tokens import claims, sign, write_keys

MONITORING = pathlib.Path(__file__).resolve().parents[1] / "deploy" / "monitoring"
INTERVAL = "30s"
"""Value of Grafana's $__rate_interval."""
COMPARISON = re.compile(r"\s*(?:==|!=|<=|>=|<|>)\s*-?[\d.e]+(?:\s*\*\s*[\d.]+)?\s*$")
BARE = re.compile(r'"[^"]*"|\[[^]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)|\boffset\s+\w+')
NAME = re.compile(r"\b[a-z_][a-zA-Z0-9_:]*\b(?!\s*\()")
WORDS = frozenset(("by", "without", "or", "and", "unless", "bool", "offset"))
SUFFIXES = ("_bucket", "_sum", "_count", "_total")
PROMETHEUS = ("up", "scrape_duration_seconds")


class Expression(NamedTuple):
    """An expression and its origin."""

    place: str
    expression: str


def alert_expressions(rules: Any) -> Iterator[Expression]:
    """Yield the left side of each alert's comparison."""
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        yield Expression(f"alert {rule['alert']}", COMPARISON.sub("", rule["expr"].strip()))


def dashboard_expressions(name: str, panels: list[Any]) -> Iterator[Expression]:
    """Yield the targets of panels, including nested panels."""
    for panel in panels:
        yield from dashboard_expressions(name, panel.get("panels") or [])
        for target in panel.get("targets") or []:
            if target.get("expr"):
                yield Expression(
                    f"{name} {panel.get('title', '')}", target["expr"].replace("$__rate_interval", INTERVAL)
                )


def metrics_of(expression: str) -> set[str]:
    """Return the metrics that an expression selects."""
    return set(NAME.findall(re.sub(r"\{[^}]*\}", " ", BARE.sub(" ", expression)))) - WORDS


def base(name: str, families: set[str]) -> str:
    """Return the metric family of a series."""
    return next((name.removesuffix(end) for end in SUFFIXES if name.removesuffix(end) in families), name)


def reason(expression: str, exposed: set[str]) -> str:
    """Return why an expression may have no data, or "" if it should have some."""
    names = metrics_of(expression)
    families = exposed | set(CATALOGUE)
    if others := {
        name for name in names if base(name, families) not in families and name not in families | set(PROMETHEUS)
    }:
        return f"not of a control plane: {', '.join(sorted(others))}"
    if unseen := {name for name in names if base(name, exposed) not in exposed and name not in PROMETHEUS}:
        return f"no observation yet: {', '.join(sorted(unseen))}"
    return ""


async def repeat(work: Callable[[int], Awaitable[Any]], seconds: float) -> None:
    """Call a function repeatedly. Rejected calls are expected."""
    number = 0
    while True:
        with contextlib.suppress(OSError, grpc.RpcError):
            await work(number)
        number += 1
        await asyncio.sleep(seconds)


async def send_nacks(address: str) -> None:
    """Keep the stream of a proxy that rejects every response."""
    request = discovery_pb2.DiscoveryRequest
    async with grpc.aio.insecure_channel(address) as channel:
        stream: Any = channel.stream_stream
        call = stream(ADS, request.SerializeToString, discovery_pb2.DiscoveryResponse.FromString)()
        await call.write(request(node=envoy_node(proxy("sidecar", "rejecting", "ns-0", "10.3.0.1")), type_url=TYPES[0]))
        while (response := await call.read()) is not EOF:
            error = status_pb2.Status(code=13, message="no such cluster")
            await call.write(request(type_url=response.type_url, response_nonce=response.nonce, error_detail=error))


def call_webhook(port: int, path: str, plain: Any) -> None:
    """Send an object to a webhook."""
    context = ssl._create_unverified_context()
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}{path}", json.dumps(review(plain)).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=5, context=context).read()


def workload(number: int) -> Any:
    """Return a Pod to inject. Every second one has an invalid annotation."""
    return pod(annotations={"traffic.sidecar.istio.io/includeInboundPorts": "all of them"} if number % 2 else {})


def write_service(folder: pathlib.Path, number: int) -> None:
    """Change a Kubernetes Service."""
    ports = [{"name": "http", "port": 80, "targetPort": 8000 + number % 1000}]
    spec = {"clusterIP": "10.96.0.9", "ports": ports}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "ns-0"}, "spec": spec}
    (folder.parent / "service.new").write_text(json.dumps(service))
    (folder.parent / "service.new").replace(folder / "service.yaml")


def checked_object(number: int) -> Any:
    """Return an object that is invalid every second time."""
    routes = [{"route": [{"destination": {"host": "s1.ns-0.example"}, "weight": -1 if number % 2 else 1}]}]
    return make_object("VirtualService", "checked", "ns-0", {"hosts": ["s1.ns-0.example"], "http": routes})


@contextlib.asynccontextmanager
async def busy_control_plane(work: pathlib.Path, shape: Shape) -> AsyncIterator[ControlPlane]:
    """Yield a control plane with all kinds of activity."""
    folder, inject = work / "config", work / "inject"
    folder.mkdir()
    inject.mkdir()
    write_mesh(folder, shape)
    (folder / "wrong.yaml").write_text(json.dumps(checked_object(1)))
    for name, text in zip(("config", "values"), config_texts(), strict=True):
        (inject / name).write_text(text)
    keys = write_keys(work / "keys.json")
    plane = ControlPlane(
        work, folder, more=(f"--caDir={work / 'ca'}", f"--tokenKeys={keys}", f"--injectionDir={inject}")
    )
    await asyncio.to_thread(plane.wait_ready)
    root, secure, https = (
        (work / "ca" / "ca-cert.pem").read_bytes(),
        plane.ports["secureGRPCAddr"],
        plane.ports["httpsAddr"],
    )

    async def request_certificate(number: int) -> None:
        async with secure_channel(secure, root) as channel:
            await create_certificate(channel, sign(claims()) if number % 2 else "bad")

    tasks = [asyncio.create_task(run_proxy(plane.xds, number, shape)) for number in range(shape.proxies)]
    tasks += [
        asyncio.create_task(repeat(lambda _: send_nacks(plane.xds), 1)),
        asyncio.create_task(repeat(lambda number: asyncio.to_thread(edit, folder, number, shape), 0.5)),
        asyncio.create_task(repeat(request_certificate, 0.5)),
        asyncio.create_task(
            repeat(lambda number: asyncio.to_thread(call_webhook, https, "/inject", workload(number)), 0.5)
        ),
        asyncio.create_task(repeat(lambda number: asyncio.to_thread(write_service, folder, number), 0.5)),
        asyncio.create_task(
            repeat(lambda number: asyncio.to_thread(call_webhook, https, "/validate", checked_object(number)), 0.5)
        ),
    ]
    try:
        yield plane
        for task in tasks:
            if task.done():
                task.result()  # raises if an activity failed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(plane.stop)


class Prometheus(Process):
    """A Prometheus that scrapes one control plane and evaluates our rules."""

    def __init__(self, binary: str, work: pathlib.Path, target: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        target_config = {"targets": [target], "labels": {"app": "istiod", "pod": "istiod-0"}}
        intervals = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        jobs = [{"job_name": "istiod", "static_configs": [target_config]}]
        config = {"global": intervals, "rule_files": [str(MONITORING / "alerts.yaml")], "scrape_configs": jobs}
        (work / "prometheus.yaml").write_text(yaml.safe_dump(config))
        flags = {
            "config.file": work / "prometheus.yaml",
            "storage.tsdb.path": work / "tsdb",
            "web.listen-address": self.address,
        }
        super().__init__([binary, *(f"--{name}={value}" for name, value in flags.items())], work / "prometheus.log")

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(
            f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10
        ) as response:
            return json.load(response)["data"]


def evaluate(prometheus: Prometheus, expressions: list[Expression], exposed: set[str], verbose: bool) -> bool:
    """Print expressions without data. Return whether all of them have a reason."""
    is_complete, with_data = True, 0
    for place, expression in expressions:
        result = prometheus.get("query", query=expression)["result"]
        explanation = reason(expression, exposed)
        with_data += bool(result)
        is_complete = is_complete and bool(result or explanation)
        if verbose and result:
            print(f"{len(result):4} series   {place}: {expression}")
        if not result:
            print(f"{explanation or 'NO DATA'}\n           {place}: {expression}")
    print(f"{with_data} of {len(expressions)} expressions have data")
    return is_complete


def rules_hold(prometheus: Prometheus) -> bool:
    """Return whether Prometheus can evaluate every rule. Print failed rules and active alerts."""
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    for rule in rules:
        if rule["health"] != "ok":
            print(f"{rule['name']}: {rule['health']}: {rule.get('lastError', '')}")
    active = sorted({rule["name"] for rule in rules if rule["state"] != "inactive"})
    print(f"{len(rules)} rules evaluated; active alerts: {', '.join(active) or 'none'}")
    return all(rule["health"] == "ok" for rule in rules)


async def measure(options: argparse.Namespace, work: pathlib.Path) -> bool:
    """Return whether all expressions have the expected data and all rules are valid."""
    rules = MONITORING / "alerts.yaml"
    promtool = await asyncio.create_subprocess_exec(options.promtool, "check", "rules", str(rules))
    is_valid = await promtool.wait() == 0
    async with busy_control_plane(work, SHAPES[options.shape]) as plane:
        prometheus = Prometheus(options.prometheus, work, f"127.0.0.1:{plane.ports['monitoringAddr']}")
        try:
            await asyncio.to_thread(
                eventually, lambda: prometheus.get("query", query="up == 1")["result"], 30, "a scrape"
            )
            await asyncio.sleep(options.seconds)
            text = await asyncio.to_thread(plane.get, "/metrics")
            exposed = set(re.findall(r"^# TYPE (\S+)", text, re.M))
            expressions = list(alert_expressions(yaml.safe_load(rules.read_text())))
            for path in (MONITORING / "dashboard.json", *options.dashboard):
                expressions += dashboard_expressions(path.stem, json.loads(path.read_text())["panels"])
            is_complete = await asyncio.to_thread(evaluate, prometheus, expressions, exposed, options.verbose)
            return await asyncio.to_thread(rules_hold, prometheus) and is_complete and is_valid
        finally:
            await asyncio.to_thread(prometheus.stop)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--dashboard", type=pathlib.Path, action="append", default=[], help="an additional Grafana dashboard"
    )
    parser.add_argument("--seconds", type=float, default=40, help="time before the evaluation (default 40)")
    parser.add_argument("--shape", default="S0", choices=SHAPES, help="shape of the mesh")
    parser.add_argument("--prometheus", default="prometheus", help="path of prometheus")
    parser.add_argument("--promtool", default="promtool", help="path of promtool")
    parser.add_argument("-v", "--verbose", action="store_true", help="print expressions with data too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        return 0 if asyncio.run(measure(options, pathlib.Path(work))) else 1


if __name__ == "__main__":
    sys.exit(main())

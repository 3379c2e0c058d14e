"""What a real Prometheus makes of the metrics: every expression of our alerts and dashboards is asked for, on a control plane at work.

    python bench/prometheus.py [--dashboard FILE …] [--seconds 40] [--shape S0] [--prometheus PATH] [--promtool PATH] [-v]

Proxies connect, one refuses what it is sent, configuration is edited and is wrong in part, certificates are asked for, with a bad token too, and
the webhooks are called; Prometheus scrapes every second. Of an alert what it compares is asked for, of a dashboard (ours, and each FILE in Grafana's
JSON) each target. A line is printed for each expression without data, with the reason:

    not of a control plane    its metrics are of machines or proxies
    nothing counted it yet    a series appears with its first observation, which did not happen here
    NOTHING                   there are series, and the expression finds none of them

The exit status is 1 where there is one of the last sort, or the rules are not good: `promtool` checks them, and Prometheus evaluates them.
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

from bench.static_mesh import ADS, SHAPES, TYPES, Shape, edit, made, stand_in, write_mesh
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
"""What stands for Grafana's $__rate_interval."""
COMPARISON = re.compile(r"\s*(?:==|!=|<=|>=|<|>)\s*-?[\d.e]+(?:\s*\*\s*[\d.]+)?\s*$")
BARE = re.compile(r'"[^"]*"|\[[^]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)|\boffset\s+\w+')
NAME = re.compile(r"\b[a-z_][a-zA-Z0-9_:]*\b(?!\s*\()")
WORDS = frozenset(("by", "without", "or", "and", "unless", "bool", "offset"))
SUFFIXES = ("_bucket", "_sum", "_count", "_total")
PROMETHEUS = ("up", "scrape_duration_seconds")


class Asked(NamedTuple):
    """An expression, and where it is from."""

    place: str
    expression: str


def of_alerts(rules: Any) -> Iterator[Asked]:
    """Yield what each alert compares."""
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        yield Asked(f"alert {rule['alert']}", COMPARISON.sub("", rule["expr"].strip()))


def of_dashboard(name: str, panels: list[Any]) -> Iterator[Asked]:
    """Yield the targets of panels, and of the panels in them."""
    for panel in panels:
        yield from of_dashboard(name, panel.get("panels") or [])
        for target in panel.get("targets") or []:
            if target.get("expr"):
                yield Asked(f"{name} {panel.get('title', '')}", target["expr"].replace("$__rate_interval", INTERVAL))


def metrics_of(expression: str) -> set[str]:
    """Return the metrics that an expression selects."""
    return set(NAME.findall(re.sub(r"\{[^}]*\}", " ", BARE.sub(" ", expression)))) - WORDS


def base(name: str, known: set[str]) -> str:
    """Return the family of a series."""
    return next((name.removesuffix(end) for end in SUFFIXES if name.removesuffix(end) in known), name)


def reason(expression: str, exposed: set[str]) -> str:
    """Return why an expression may have no data; "" where it should have some."""
    names = metrics_of(expression)
    known = exposed | set(CATALOGUE)
    if foreign := {name for name in names if base(name, known) not in known and name not in known | set(PROMETHEUS)}:
        return f"not of a control plane: {', '.join(sorted(foreign))}"
    if unseen := {name for name in names if base(name, exposed) not in exposed and name not in PROMETHEUS}:
        return f"nothing counted it yet: {', '.join(sorted(unseen))}"
    return ""


async def always(work: Callable[[int], Awaitable[Any]], seconds: float) -> None:
    """Does something again and again; a call that is refused is what was wanted."""
    number = 0
    while True:
        with contextlib.suppress(OSError, grpc.RpcError):
            await work(number)
        number += 1
        await asyncio.sleep(seconds)


async def refuse(address: str) -> None:
    """Keeps the stream of a proxy that refuses everything."""
    request = discovery_pb2.DiscoveryRequest
    async with grpc.aio.insecure_channel(address) as channel:
        stream: Any = channel.stream_stream
        call = stream(ADS, request.SerializeToString, discovery_pb2.DiscoveryResponse.FromString)()
        await call.write(request(node=envoy_node(proxy("sidecar", "stubborn", "ns-0", "10.3.0.1")), type_url=TYPES[0]))
        while (response := await call.read()) is not EOF:
            error = status_pb2.Status(code=13, message="no such cluster")
            await call.write(request(type_url=response.type_url, response_nonce=response.nonce, error_detail=error))


def call_webhook(port: int, path: str, what: Any) -> None:
    """Has a webhook look at an object."""
    context = ssl._create_unverified_context()
    asked = urllib.request.Request(
        f"https://127.0.0.1:{port}{path}", json.dumps(review(what)).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(asked, timeout=5, context=context).read()


def workload(number: int) -> Any:
    """Return a Pod that gets its proxy; every other time one that cannot, as its annotation says nothing that there is."""
    return pod(annotations={"traffic.sidecar.istio.io/includeInboundPorts": "all of them"} if number % 2 else {})


def write_service(folder: pathlib.Path, number: int) -> None:
    """Change a Service of Kubernetes."""
    ports = [{"name": "http", "port": 80, "targetPort": 8000 + number % 1000}]
    spec = {"clusterIP": "10.96.0.9", "ports": ports}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "ns-0"}, "spec": spec}
    (folder.parent / "service.new").write_text(json.dumps(service))
    (folder.parent / "service.new").replace(folder / "service.yaml")


def wrong(number: int) -> Any:
    """Return an object that the webhook refuses every other time."""
    routes = [{"route": [{"destination": {"host": "s1.ns-0.example"}, "weight": -1 if number % 2 else 1}]}]
    return made("VirtualService", "checked", "ns-0", {"hosts": ["s1.ns-0.example"], "http": routes})


@contextlib.asynccontextmanager
async def at_work(work: pathlib.Path, shape: Shape) -> AsyncIterator[ControlPlane]:
    """Has a control plane do some of everything."""
    folder, inject = work / "config", work / "inject"
    folder.mkdir()
    inject.mkdir()
    write_mesh(folder, shape)
    (folder / "wrong.yaml").write_text(json.dumps(wrong(1)))
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

    async def ask_certificate(number: int) -> None:
        async with secure_channel(secure, root) as channel:
            await create_certificate(channel, sign(claims()) if number % 2 else "bad")

    tasks = [asyncio.create_task(stand_in(plane.xds, number, shape)) for number in range(shape.proxies)]
    tasks += [
        asyncio.create_task(always(lambda _: refuse(plane.xds), 1)),
        asyncio.create_task(always(lambda number: asyncio.to_thread(edit, folder, number, shape), 0.5)),
        asyncio.create_task(always(ask_certificate, 0.5)),
        asyncio.create_task(
            always(lambda number: asyncio.to_thread(call_webhook, https, "/inject", workload(number)), 0.5)
        ),
        asyncio.create_task(always(lambda number: asyncio.to_thread(write_service, folder, number), 0.5)),
        asyncio.create_task(
            always(lambda number: asyncio.to_thread(call_webhook, https, "/validate", wrong(number)), 0.5)
        ),
    ]
    try:
        yield plane
        for task in tasks:
            if task.done():
                task.result()  # raises where something was not done
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(plane.stop)


class Prometheus(Process):
    """A Prometheus that scrapes one control plane and evaluates our rules."""

    def __init__(self, binary: str, work: pathlib.Path, target: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        scraped = {"targets": [target], "labels": {"app": "istiod", "pod": "istiod-0"}}
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        jobs = [{"job_name": "istiod", "static_configs": [scraped]}]
        written = {"global": every, "rule_files": [str(MONITORING / "alerts.yaml")], "scrape_configs": jobs}
        (work / "prometheus.yaml").write_text(yaml.safe_dump(written))
        flags = {
            "config.file": work / "prometheus.yaml",
            "storage.tsdb.path": work / "tsdb",
            "web.listen-address": self.address,
        }
        super().__init__([binary, *(f"--{name}={value}" for name, value in flags.items())], work / "prometheus.log")

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(
            f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10
        ) as answer:
            return json.load(answer)["data"]


def judge(prometheus: Prometheus, asked: list[Asked], exposed: set[str], verbose: bool) -> bool:
    """Print what has no data; returns whether nothing should have had some."""
    good, found = True, 0
    for place, expression in asked:
        result = prometheus.get("query", query=expression)["result"]
        why = reason(expression, exposed)
        found += bool(result)
        good = good and bool(result or why)
        if verbose and result:
            print(f"{len(result):4} series   {place}: {expression}")
        if not result:
            print(f"{why or 'NOTHING'}\n           {place}: {expression}")
    print(f"{found} of {len(asked)} expressions have data")
    return good


def rules_hold(prometheus: Prometheus) -> bool:
    """Return whether Prometheus could evaluate every rule; prints those that it could not, and the alerts that fire."""
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    for rule in rules:
        if rule["health"] != "ok":
            print(f"{rule['name']} is {rule['health']}: {rule.get('lastError', '')}")
    active = sorted({rule["name"] for rule in rules if rule["state"] != "inactive"})
    print(f"{len(rules)} rules are evaluated; active: {', '.join(active) or 'none'}")
    return all(rule["health"] == "ok" for rule in rules)


async def measure(options: argparse.Namespace, work: pathlib.Path) -> bool:
    """Return whether all that should have data has some."""
    rules = MONITORING / "alerts.yaml"
    checked = await asyncio.create_subprocess_exec(options.promtool, "check", "rules", str(rules))
    is_valid = await checked.wait() == 0
    async with at_work(work, SHAPES[options.shape]) as plane:
        prometheus = Prometheus(options.prometheus, work, f"127.0.0.1:{plane.ports['monitoringAddr']}")
        try:
            await asyncio.to_thread(
                eventually, lambda: prometheus.get("query", query="up == 1")["result"], 30, "a scrape"
            )
            await asyncio.sleep(options.seconds)
            text = await asyncio.to_thread(plane.get, "/metrics")
            exposed = set(re.findall(r"^# TYPE (\S+)", text, re.M))
            asked = list(of_alerts(yaml.safe_load(rules.read_text())))
            for path in (MONITORING / "dashboard.json", *options.dashboard):
                asked += of_dashboard(path.stem, json.loads(path.read_text())["panels"])
            good = await asyncio.to_thread(judge, prometheus, asked, exposed, options.verbose)
            return await asyncio.to_thread(rules_hold, prometheus) and good and is_valid
        finally:
            await asyncio.to_thread(prometheus.stop)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--dashboard", type=pathlib.Path, action="append", default=[], help="a dashboard of Grafana, beside ours"
    )
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--shape", default="S0", choices=SHAPES)
    parser.add_argument("--prometheus", default="prometheus")
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        return 0 if asyncio.run(measure(options, pathlib.Path(work))) else 1


if __name__ == "__main__":
    sys.exit(main())

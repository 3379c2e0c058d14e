"""Comparison of debug pages and metrics with those of istiod.

A control plane starts on the mesh in pages/mesh, its proxies connect, and one rejects a response. A page is compared by its
status, content type, text, and the paths of its keys with their types: values differ. A metric is compared by its type, label
names and buckets. The share of a page is that of its paths; a surplus path costs nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import pathlib
import re
import ssl
import tempfile
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from google.protobuf import json_format

from testing.clients.ads import EOF
from tests.conformance.client import CHANNEL_OPTIONS, AdsClient
from tests.conformance.page_metrics import differences, parse_metrics
from tests.conformance.page_shapes import Shape, ShapeRules, shape_of
from tests.conformance.scenario import Plain, Scenario, load_scenario
from tests.conformance.server import Server
from tests.conformance.xds import FLOORS

RECORDINGS = pathlib.Path(__file__).parent / "pages"
PORTS = {"http": "httpAddr", "monitoring": "monitoringAddr", "https": "httpsAddr"}
QUIET_SECONDS, LIMIT_SECONDS, STEP_SECONDS = 0.5, 20.0, 0.8
REFRESH_SECONDS = 11
"""The push status and the gauges are refreshed every ten seconds."""
SHOWN_CHARACTERS = 120


@dataclasses.dataclass
class PageScore:
    """The number of recorded paths of a page, and those that are not equal."""

    paths: int = 0
    missing: list[str] = dataclasses.field(default_factory=list)
    different: list[str] = dataclasses.field(default_factory=list)

    @property
    def equal(self) -> int:
        return self.paths - len(self.missing) - len(self.different)

    @property
    def share(self) -> float:
        return self.equal / self.paths if self.paths else 1.0

    def check(self, label: str, expected: Any, actual: Any) -> None:
        self.paths += 1
        if expected != actual:
            self.different.append(f"{label}: istiod {_shorten(expected)}, here {_shorten(actual)}")

    def check_shape(self, label: str, expected: Shape, actual: Shape) -> None:
        for path, types in expected.items():
            self.paths += 1
            if path not in actual:
                self.missing.append(f"{label}{path}")
            elif not (actual[path] <= types or types <= actual[path]):
                texts = ("|".join(sorted(side)) for side in (types, actual[path]))
                self.different.append("{}{}: istiod {}, here {}".format(label, path, *texts))


class Response(NamedTuple):
    """The response to a request for a page. Status 0 means that there was none."""

    status: int
    content_type: str
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", help="compare pages whose names contain one of these words, such as metrics"
    )


async def run(options: argparse.Namespace) -> bool:
    """Compare pages, print a line each and the totals, and return whether none is below its floor."""
    floors: dict[str, float] = tomllib.loads(FLOORS.read_text("utf-8"))["pages"]
    scenario = load_scenario(RECORDINGS / "mesh")
    with tempfile.TemporaryDirectory(prefix="pages-") as work:
        server = Server(scenario, pathlib.Path(work))
        try:
            await server.wait_ready()
            scores = await compare_pages(scenario, server, options.words)
        finally:
            await server.stop()
    failed = []
    for name, score in scores.items():
        below = score.share < floors.get(name, 1.0)
        if below:
            failed.append(name)
        print(f"{name:22} {score.equal:5} of {score.paths:<5} {100 * score.share:5.1f} %")
        for row in [*score.missing, *score.different] if options.verbose or below else []:
            print(f"    {row}")
    equal, paths = sum(score.equal for score in scores.values()), sum(score.paths for score in scores.values())
    print(f"pages: {equal} of {paths} paths of {len(scores)} pages are equal")
    if failed:
        print("failed:", ", ".join(failed))
    return bool(scores) and not failed


async def compare_pages(scenario: Scenario, server: Server, words: Sequence[str]) -> dict[str, PageScore]:
    """Connect the proxies, apply the steps, and compare the pages while the proxies are connected."""

    def is_selected(name: str) -> bool:
        return not words or any(word in name for word in words)

    scores: dict[str, PageScore] = {}
    async with contextlib.AsyncExitStack() as stack:
        clients: list[AdsClient] = []
        for proxy in scenario.proxies:  # in sequence, because connections are numbered
            channel = grpc.aio.insecure_channel(server.process.xds, options=CHANNEL_OPTIONS)
            await stack.enter_async_context(channel)
            clients.append(AdsClient(proxy, channel))
            stack.push_async_callback(clients[-1].close)
            await settle(clients, 0.0)
        objects = list(scenario.objects)
        for step in scenario.steps:
            for client in clients:
                nack = client.proxy.nack
                client.nack_next = nack if nack and nack["step"] == step.name else None
            objects = step.apply(objects)
            server.write(objects)
            await settle(clients, STEP_SECONDS)
        await asyncio.sleep(REFRESH_SECONDS)
        proxies = {client.proxy.name: client.proxy.node["id"].split("~")[2] for client in clients}
        pages = json.loads((RECORDINGS / "pages.json").read_text("utf-8"))
        for page in sorted(pages, key=lambda page: page.get("last", False)):  # pages that change the server come last
            if is_selected(page["page"]):
                scores[page["page"]] = await asyncio.to_thread(compare_page, page, server, proxies)
        if is_selected("xds"):
            scores["xds"] = await compare_streams(server)
        await settle(clients, 0.5)
        if is_selected("metrics"):
            await asyncio.to_thread(call_webhooks, scenario, server)
            scores["metrics"] = compare_metrics(await asyncio.to_thread(server.process.get, "/metrics"))
    return scores


async def settle(clients: Sequence[AdsClient], seconds: float) -> None:
    for client in clients:
        client.expect_changes(seconds)
    await asyncio.gather(*(client.settle(QUIET_SECONDS, LIMIT_SECONDS) for client in clients))
    for client in clients:
        client.stop_awaiting_answers()


def compare_page(page: Plain, server: Server, proxies: dict[str, str]) -> PageScore:
    """Compare all variants of a page on all of its ports. The keys are compared on the first port."""
    score, rules = PageScore(), ShapeRules.of(page)
    for variant in page["variants"]:
        expected: Shape = {}
        if "file" in variant:
            expected = shape_of(json.loads((RECORDINGS / "debug" / variant["file"]).read_text("utf-8")), rules)
        query = variant.get("query", "")
        first: Shape | None = None
        for port in page["ports"]:
            response = fetch(_url(page, variant, port, server, proxies), variant.get("method", "GET"))
            label = " ".join(filter(None, (port, variant.get("path"), query and f"?{query}"))) + " "
            score.check(f"{label}status", variant["status"], response.status)
            shape: Shape = {}
            if variant["status"] == response.status:
                _check_texts(score, label, variant, response)
                with contextlib.suppress(ValueError):
                    shape = shape_of(json.loads(response.body), rules) if expected else {}
            if first is None:
                score.check_shape(label, expected, shape)
                first = shape
            elif expected:
                score.check(f"{label}paths as on the first port", True, shape.keys() == first.keys())
    return score


def _check_texts(score: PageScore, label: str, variant: Plain, response: Response) -> None:
    if "content_type" in variant:
        types = (text.partition(";")[0].strip() for text in (variant["content_type"], response.content_type))
        score.check(f"{label}content type", *types)
    if "text" in variant:
        is_match = re.fullmatch(variant["text"], response.text, re.DOTALL)
        score.check(f"{label}text", variant["text"], variant["text"] if is_match else response.text)
    for word in variant.get("contains", ()):
        score.paths += 1
        if word not in response.text:
            score.missing.append(f"{label}{word}")


def _url(page: Plain, variant: Plain, port: str, server: Server, proxies: dict[str, str]) -> str:
    query = variant.get("query", "")
    for name, node_id in proxies.items():
        query = query.replace(f"<{name}>", urllib.parse.quote(node_id))
    path = str(variant.get("path", page["path"])) + (f"?{query}" if query else "")
    return f"{'https' if port == 'https' else 'http'}://127.0.0.1:{server.process.ports[PORTS[port]]}{path}"


def fetch(url: str, method: str = "GET", body: bytes | None = None, content_type: str = "") -> Response:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Content-Type": content_type} if content_type else {}
    request = urllib.request.Request(url, method=method, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as response:
            return Response(response.status, response.headers.get("Content-Type") or "", response.read())
    except urllib.error.HTTPError as error:
        return Response(error.code, error.headers.get("Content-Type") or "", error.read())
    except OSError as error:
        return Response(0, "", str(error).encode())


async def compare_streams(server: Server) -> PageScore:
    """Compare the responses to requests for debug pages over discovery streams, as istioctl sends them."""
    score = PageScore()
    async with grpc.aio.insecure_channel(server.process.xds) as channel:
        for row in json.loads((RECORDINGS / "streams.json").read_text("utf-8")):
            for is_delta in (False, True):
                status = await request_over_stream(channel, row["type"], row["names"], is_delta)
                score.check(f"{'delta' if is_delta else 'sotw'} {row['type']} {row['names']}", row["code"], status)
    return score


async def request_over_stream(channel: Any, type_url: str, names: list[str], is_delta: bool) -> str:
    """Send one request on a new stream, and return the name of the status that ends it."""
    stub: Any = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
    node = {
        "id": "sidecar~0.0.0.0~debug.tickets~tickets.svc.cluster.local",
        "metadata": {"NAMESPACE": "tickets", "SERVICE_ACCOUNT": "booking", "GENERATOR": "event"},
    }
    request: Any
    if is_delta:
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names)
    else:
        request = discovery_pb2.DiscoveryRequest(type_url=type_url, resource_names=names)
    json_format.ParseDict(node, request.node)
    call = (stub.DeltaAggregatedResources if is_delta else stub.StreamAggregatedResources)()
    try:
        await call.write(request)
        response = await asyncio.wait_for(call.read(), 5)
        status: str = (await call.code()).name if response is EOF else "OK"
        return status
    except TimeoutError:
        return "no response"
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    finally:
        call.cancel()


def call_webhooks(scenario: Scenario, server: Server) -> None:
    """Call the webhooks so that their metrics have series: injected, skipped, valid, invalid and malformed requests."""
    url = f"https://127.0.0.1:{server.process.ports['httpsAddr']}"
    metadata = {"namespace": "harbor", "labels": {"app": "fresh"}}
    containers = [{"name": "fresh", "image": "registry.example/fresh:1"}]
    routes = {o["metadata"]["name"]: o for o in scenario.objects if o["kind"] == "VirtualService"}
    for name, spec in (("fresh", {}), ("host", {"hostNetwork": True})):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **metadata},
            "spec": {"containers": containers, **spec},
        }
        fetch(f"{url}/inject", "POST", _review(pod), "application/json")
    for o in (routes["timetable"], routes["nowhere"]):
        fetch(f"{url}/validate", "POST", _review(o), "application/json")
    for path in ("inject", "validate"):
        fetch(f"{url}/{path}", "POST", b"{}", "text/plain")


def _review(o: Plain) -> bytes:
    group, _, version = o["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": o["kind"]}
    request = {
        "uid": "1",
        "kind": kind,
        "resource": kind,
        "name": o["metadata"]["name"],
        "namespace": o["metadata"]["namespace"],
        "operation": "CREATE",
        "object": o,
        "userInfo": {},
        "dryRun": False,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def compare_metrics(text: str) -> PageScore:
    """Compare the families of a scrape with the recorded ones."""
    expected_families = json.loads((RECORDINGS / "metrics.json").read_text("utf-8"))["families"]
    score, families = PageScore(), parse_metrics(text)
    for name, expected in expected_families.items():
        score.paths += 1
        if name not in families:
            score.missing.append(name)
        elif rows := differences(expected, families[name]):
            score.different.append(f"{name}: " + "; ".join(rows))
    return score


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…")

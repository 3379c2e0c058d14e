"""Compare the control plane with a running istiod on a real API server, as `pilotctl shadow` does.

    python bench/shadow.py --binaries DIR --crds gateway-api-crd.yaml [--proxies 1000] [WORD…]

DIR contains etcd, kube-apiserver and istiod's pilot-discovery. For each mesh of tests/conformance whose name contains a
WORD, the objects are written to the API server, istiod is started on it, and the proxies of the mesh connect to istiod.
Then they are compared. Afterwards a field of one object is changed on the side of this control plane
alone, and the difference must be attributed to this object. Finally `pilotctl shadow` compares a mesh with many proxies, and the audit
log of the API server is searched for writes of the user whose token `pilotctl shadow` had.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import json
import os
import pathlib
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, NamedTuple

import grpc
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from pilot.config.catalogue import CATALOGUE  # noqa: E402
from pilot.settings.parse import load  # noqa: E402
from pilot.shadow.cluster_snapshot import ClusterSnapshot, ShadowMesh, read_snapshot  # noqa: E402
from pilot.shadow.derived_resources import derive_resources  # noqa: E402
from pilot.shadow.known_differences import ShadowVerdict  # noqa: E402
from pilot.shadow.normal_form import derived_form  # noqa: E402
from pilot.shadow.proxy_comparison import compare_proxies  # noqa: E402
from pilot.shadow.reference_pages import ReferencePages  # noqa: E402
from pilot.shadow.reference_proxies import ReferenceProxy, read_proxies  # noqa: E402
from pilot.shadow.shadow_report import compare_with_reference  # noqa: E402
from testing.kube.real_mesh import RealMesh  # noqa: E402
from testing.kube.real_server import READER, RealApiServer  # noqa: E402
from testing.processes.process import Process, eventually, free_port  # noqa: E402
from tests.conformance.client import CHANNEL_OPTIONS, AdsClient  # noqa: E402
from tests.conformance.scenario import ScenarioProxy, find_scenarios, load_scenario  # noqa: E402
from tests.conformance.xds import MESHES  # noqa: E402

Plain = dict[str, Any]
FLAGS = ("grpcAddr", "httpAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")
READS = {"get", "list", "watch"}


class Istiod(Process):
    """The reference."""

    def __init__(
        self, binaries: pathlib.Path, kubeconfig: pathlib.Path, folder: pathlib.Path, environ: Mapping[str, str]
    ):
        self.ports = {flag: free_port() for flag in FLAGS}
        command = [str(binaries / "pilot-discovery"), "discovery", f"--kubeconfig={kubeconfig}", "--ctrlz_port=0"]
        command += [f"--{flag}=127.0.0.1:{port}" for flag, port in self.ports.items()]
        variables = {"POD_NAME": "istiod-0", "POD_NAMESPACE": "istio-system", "ISTIOD_CUSTOM_HOST": "localhost"}
        super().__init__(command, folder / "istiod.log", environ={**variables, **environ}, folder=folder)
        self.pages = f"http://127.0.0.1:{self.ports['monitoringAddr']}"

    def wait_ready(self) -> None:
        def ready() -> bool:
            self.check_alive()
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['httpAddr']}/ready", timeout=2) as response:
                return bool(response.status == 200)

        eventually(ready, 60, "istiod ready")


class Mesh(NamedTuple):
    """A mesh: its objects, the environment of istiod, and the proxies that connect."""

    name: str
    objects: list[Plain]
    environ: Mapping[str, str]
    proxies: list[ScenarioProxy]


def conformance_mesh(folder: pathlib.Path) -> Mesh:
    """Return a mesh of tests/conformance with the objects that a cluster has besides."""
    scenario = load_scenario(folder)
    objects = [plain for plain in scenario.objects if plain["metadata"]["name"] != "kubernetes"]
    data = {"mesh": scenario.mesh_config or "{}"}
    data |= {"meshNetworks": scenario.mesh_networks} if scenario.mesh_networks else {}
    return Mesh(scenario.name, _complete(objects, data), scenario.environ, list(scenario.proxies))


def _complete(objects: list[Plain], mesh_config: Mapping[str, str]) -> list[Plain]:
    named = {plain["metadata"]["name"] for plain in objects if plain["kind"] == "Namespace"}
    used = {plain["metadata"].get("namespace") for plain in objects} - {None, *named}
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in used]
    metadata = {"name": "istio", "namespace": "istio-system"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(mesh_config)}
    return [*spaces, *objects, config]


def large_mesh(proxies: int) -> Mesh:
    """Return a mesh with 20 services in each namespace, of which each proxy sees those of its namespace."""
    objects, connected = list[Plain](), list[ScenarioProxy]()
    for number in range(proxies):
        space, name, ip = (
            f"ns-{number // 20:02}",
            f"app-{number % 20}",
            f"10.{128 + number // 62500}.{number // 250}.{number % 250 + 1}",
        )
        if number % 20 == 0:
            egress = {"egress": [{"hosts": ["./*", "istio-system/*"]}]}
            objects += [_object("networking.istio.io/v1", "Sidecar", space, "default", spec=egress)]
        port = {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}
        address = f"10.96.{1 + number // 250}.{number % 250 + 1}"
        labels = {"app": name, "version": "v1", "security.istio.io/tlsMode": "istio"}
        spec = {"serviceAccountName": name, "containers": [{"name": "app", "image": "example.com/app"}]}
        status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}
        endpoint = {
            "addresses": [ip],
            "conditions": {"ready": True},
            "targetRef": {"kind": "Pod", "name": f"{name}-0", "namespace": space},
        }
        objects += [
            _object("v1", "Service", space, name, spec={"clusterIP": address, "selector": {"app": name}, "ports": [port]}),
            _object("v1", "Pod", space, f"{name}-0", labels, spec=spec, status=status),
            _object(
                "discovery.k8s.io/v1", "EndpointSlice", space, f"{name}-1", {"kubernetes.io/service-name": name},
                addressType="IPv4", endpoints=[endpoint], ports=[{"name": "http", "port": 8080, "protocol": "TCP"}],
            ),
            _object("networking.istio.io/v1", "VirtualService", space, name, spec=_route(name)),
        ]  # fmt: skip
        metadata = {
            "NAME": f"{name}-0", "NAMESPACE": space, "SERVICE_ACCOUNT": name, "CLUSTER_ID": "Kubernetes",
            "ISTIO_VERSION": "1.32.0", "MESH_ID": "cluster.local", "INSTANCE_IPS": ip, "LABELS": labels,
            "INTERCEPTION_MODE": "REDIRECT", "WORKLOAD_NAME": name, "PROXY_CONFIG": {},
        }  # fmt: skip
        node = {"id": f"sidecar~{ip}~{name}-0.{space}~{space}.svc.cluster.local", "metadata": metadata}
        connected.append(ScenarioProxy(f"{space}-{name}", True, ("CDS", "EDS", "LDS", "RDS"), node))
    return Mesh(
        f"{proxies} proxies", _complete(objects, {"mesh": "{}"}), {"PILOT_MAX_REQUESTS_PER_SECOND": "10000"}, connected
    )


def _route(host: str) -> Plain:
    return {"hosts": [host], "http": [{"timeout": "5s", "route": [{"destination": {"host": host}}]}]}


def _object(api: str, kind: str, space: str, name: str, labels: Mapping[str, str] | None = None, **more: Any) -> Plain:
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": name, "namespace": space, "labels": dict(labels or {})},
        **more,
    }


@contextlib.asynccontextmanager
async def running(
    mesh: Mesh, server: RealApiServer, binaries: pathlib.Path, folder: pathlib.Path
) -> AsyncIterator[Istiod]:
    """Write the objects of a mesh, start istiod, and connect the proxies. Afterwards delete the objects."""
    cluster = RealMesh(str(server.kubeconfig()))
    await cluster.write(mesh.objects)
    istiod = Istiod(binaries, server.kubeconfig(), folder, mesh.environ)
    try:
        await asyncio.to_thread(istiod.wait_ready)
        async with contextlib.AsyncExitStack() as stack:
            clients = []
            for proxy in mesh.proxies:
                channel = grpc.aio.insecure_channel(f"127.0.0.1:{istiod.ports['grpcAddr']}", options=CHANNEL_OPTIONS)
                await stack.enter_async_context(channel)
                clients.append(AdsClient(proxy, channel))
                stack.push_async_callback(clients[-1].close)
            await asyncio.gather(*(client.settle(1, 120) for client in clients))
            yield istiod
    finally:
        await asyncio.to_thread(istiod.stop)
        await cluster.delete(o for o in mesh.objects if o["metadata"]["name"] != "istio-system")
        await cluster.close()


async def run_command(mesh: Mesh, istiod: Istiod, server: RealApiServer) -> tuple[Plain, float]:
    """Run `pilotctl shadow`, and return its report and the seconds that it took."""
    variables = [f"--environment={name}={value}" for name, value in mesh.environ.items()]
    command = [sys.executable, "-m", "pilot.cli.pilotctl", "shadow", f"--reference={istiod.pages}", "-o", "json"]
    started_at = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command,
        *variables,
        f"--kubeconfig={server.kubeconfig(READER)}",
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-2000:]
    return json.loads(output), time.monotonic() - started_at


async def compare(mesh: Mesh, istiod: Istiod, server: RealApiServer) -> tuple[Plain, float]:
    """Compare in this process, which saves the start of a command for each mesh."""
    cluster, pages = RealMesh(str(server.kubeconfig(READER))), ReferencePages(istiod.pages)
    settings, started_at = load([], {**os.environ, **mesh.environ}).settings, time.monotonic()
    try:
        report = await compare_with_reference(cluster.objects, [pages], settings)
    finally:
        await pages.close()
        await cluster.close()
    return report.show(), time.monotonic() - started_at


# Changes of a field by kind. Each returns whether the object has the field.
def _set_timeout(spec: Plain) -> bool:
    return any(route.update(timeout="7.5s") is None for route in spec.get("http", ())[:1] if "route" in route)


def _set_connections(spec: Plain) -> bool:
    pool = spec.setdefault("trafficPolicy", {}).setdefault("connectionPool", {})
    pool.setdefault("tcp", {})["maxConnections"] = 777
    return True


def _move_port(spec: Plain) -> bool:
    spec["ports"][0]["number"] += 1
    return True


def _set_issuer(spec: Plain) -> bool:
    return any(rule.update(issuer="seed.example.com") is None for rule in spec.get("jwtRules", ())[:1])


def _narrow_policy(spec: Plain) -> bool:
    return any(rule.update(to=[{"operation": {"ports": ["6553"]}}]) is None for rule in spec.get("rules", ())[:1])


def _flip_mode(spec: Plain) -> bool:
    mode = spec.get("mtls", {}).get("mode")
    spec["mtls"] = {"mode": "PERMISSIVE" if mode == "STRICT" else "STRICT"}
    return True


def _rename_port(spec: Plain) -> bool:
    port = spec["ports"][0]
    port["appProtocol"] = "tcp" if "http" in f"{port.get('name', '')}{port.get('appProtocol', '')}" else "http"
    return True


CHANGES: dict[str, Callable[[Plain], bool]] = {
    "VirtualService": _set_timeout,
    "DestinationRule": _set_connections,
    "ServiceEntry": _move_port,
    "RequestAuthentication": _set_issuer,
    "AuthorizationPolicy": _narrow_policy,
    "PeerAuthentication": _flip_mode,
    "Service": _rename_port,
}


def seeds(snapshot: ClusterSnapshot, rng: random.Random) -> Iterator[tuple[Plain, ClusterSnapshot]]:
    """Yield snapshots with one changed object each, in random order, the rarer kinds first."""
    changed = [number for number, plain in enumerate(snapshot.objects) if plain["kind"] in CHANGES]
    rng.shuffle(changed)
    changed.sort(key=lambda number: snapshot.objects[number]["kind"] == "Service")
    for number in changed:
        plain = copy.deepcopy(snapshot.objects[number])
        if CHANGES[plain["kind"]](plain.setdefault("spec", {})):
            objects = [*snapshot.objects[:number], plain, *snapshot.objects[number + 1 :]]
            yield plain, snapshot._replace(objects=objects)


def derived(mesh: ShadowMesh, proxies: list[ReferenceProxy]) -> list[Any]:
    mesh.connect([(one.node_id, one.proxy) for one in proxies])
    resources = [derive_resources(mesh.mesh, one) for one in proxies]
    return [
        {kind: {n: derived_form(r.resource) for n, r in rows.items()} for kind, rows in one.items()}
        for one in resources
    ]


async def run_seeds(
    mesh: Mesh, istiod: Istiod, server: RealApiServer, rng: random.Random, count: int
) -> list[tuple[bool, str]]:
    """Compare the mesh with changed objects, and return whether each change was attributed to its object."""
    cluster, pages = RealMesh(str(server.kubeconfig(READER))), ReferencePages(istiod.pages)
    settings, results = load([], {**os.environ, **mesh.environ}).settings, list[tuple[bool, str]]()
    try:
        snapshot = await read_snapshot(cluster.objects, settings, CATALOGUE)
        proxies = (await read_proxies(pages)).proxies
        before = derived(ShadowMesh(snapshot, settings), proxies)
        for plain, changed in seeds(snapshot, rng):
            shadow = ShadowMesh(changed, settings)
            if len(results) == count:
                break
            if shadow.errors() or derived(shadow, proxies) == before:
                continue  # no connected proxy depends on the field
            report = await compare_proxies([pages], ShadowMesh(changed, settings))
            subject = (plain["kind"], plain["metadata"]["namespace"], plain["metadata"]["name"])
            objects = [
                (cause.object.kind.name, cause.object.namespace, cause.object.name)
                if cause.object is not None
                else None
                for cause in report.causes
                if cause.verdict is ShadowVerdict.UNEXPLAINED
            ]
            others = [o for o in objects if o != subject]
            note = f"{'/'.join(subject)}" + (f", others: {others}" if others else "")
            results.append((subject in objects, note))
    finally:
        await pages.close()
        await cluster.close()
    return results


async def run(options: argparse.Namespace) -> int:
    rng, clean, failures, attributed, total = random.Random(options.seed), 0, list[str](), 0, 0
    with tempfile.TemporaryDirectory(prefix="shadow-") as work:
        folder = pathlib.Path(work)
        server = RealApiServer(options.binaries, folder)
        try:
            await asyncio.to_thread(server.wait_ready)
            await write_definitions(server, options.crds)
            folders = find_scenarios([MESHES], options.words)
            for path in folders:
                mesh = conformance_mesh(path)
                async with running(mesh, server, options.binaries, folder) as istiod:
                    report, seconds = await compare(mesh, istiod, server)
                    unexplained = [c for c in report["causes"] if c["verdict"] == "unexplained"]
                    clean += not unexplained
                    print(f"{mesh.name:40} {_figures(report)} {seconds:5.1f} s", flush=True)
                    for cause in unexplained:
                        print(f"    unexplained: {cause['object']} {cause['summary']} {cause['example']}", flush=True)
                    for is_attributed, note in await run_seeds(mesh, istiod, server, rng, options.seeds):
                        total, attributed = total + 1, attributed + is_attributed
                        print(f"    {'ok  ' if is_attributed else 'MISS'} seed {note}", flush=True)
            print(f"meshes without unexplained differences: {clean} of {len(folders)}")
            print(f"changed fields attributed to their object: {attributed} of {total}")
            if options.proxies:
                mesh = large_mesh(options.proxies)
                async with running(mesh, server, options.binaries, folder) as istiod:
                    report, seconds = await run_command(mesh, istiod, server)
                    print(f"{mesh.name:40} {_figures(report)} {seconds:5.1f} s", flush=True)
                    failures += ["large mesh"] if report["equal"] != report["resources"] else []
            verbs: dict[str, int] = {}
            for event in server.requests(READER):
                verbs[event["verb"]] = verbs.get(event["verb"], 0) + 1
            print(f"audited requests of the shadow: {verbs}")
        finally:
            server.stop()
    failures += ["writes"] if verbs.keys() - READS else []
    failures += ["seeds"] if attributed < total else []
    print(f"failed: {', '.join(failures)}" if failures else "passed")
    return 1 if failures else 0


def _figures(report: Plain) -> str:
    verdicts = [cause["verdict"] for cause in report["causes"]]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)) or "no difference"
    return f"{report['proxies']:4} proxies {report['resources']:6} resources {report['equal']:6} equal  {counts}"


async def write_definitions(server: RealApiServer, files: list[pathlib.Path]) -> None:
    """Create the CustomResourceDefinitions, and the namespace of the control plane."""
    documents = [
        plain
        for path in (ROOT / "deploy/manifests/1-base.yaml", *files)
        for plain in yaml.safe_load_all(path.read_text())
        if plain and plain["kind"] == "CustomResourceDefinition"
    ]
    cluster = RealMesh(str(server.kubeconfig()))
    await cluster.write([*documents, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}}])
    await cluster.wait_for_kinds(documents)
    await cluster.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="compare only meshes whose names contain a word")
    parser.add_argument("--binaries", type=pathlib.Path, required=True)
    parser.add_argument("--crds", type=pathlib.Path, action="append", default=[], help="definitions of the Gateway API")
    parser.add_argument("--proxies", type=int, default=1000, help="proxies of the large mesh, or 0 to omit it")
    parser.add_argument("--seeds", type=int, default=1, help="changed fields for each mesh")
    parser.add_argument("--seed", type=int, default=1)
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())

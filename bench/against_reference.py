#!/usr/bin/env python3
"""Compare this control plane with istiod for random meshes, on a real API server.

    python bench/against_reference.py --binaries FOLDER --crds FILE … [--meshes 2000] [--seconds 3600] [--seed 1]

The folder has etcd, kube-apiserver and pilot-discovery, and the files have the CustomResourceDefinitions. The meshes are
crossings and edits of those in tests/conformance and in the folders of --scenarios. Both control planes read each mesh
from the same server, and every proxy connects to both. A difference is reported if it remains after a while.

Differences are grouped by cause: the type of proxy, the type of resource, and the path of the field. The smallest set of
objects that still shows a cause is written to a file in --out with --minimize. A cause may come from what a control plane
remembers of earlier meshes: --replay compares such files with new processes. Causes that docs/differences.md explains are counted.
Ambient mode is enabled, the same mesh config is used for both, and ages of objects are their order of creation.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import dataclasses
import hashlib
import json
import pathlib
import random
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from bench.explanations import Change, explanation  # noqa: E402
from testing.kube.real_mesh import RealMesh  # noqa: E402
from testing.kube.real_server import RealApiServer  # noqa: E402
from testing.processes.process import Process, eventually, free_port  # noqa: E402
from tests.conformance.client import CHANNEL_OPTIONS, AdsClient  # noqa: E402
from tests.conformance.comparison import referenced_names  # noqa: E402
from tests.conformance.random_meshes import RandomMeshes  # noqa: E402
from tests.conformance.resources import leaves_of, register_messages, to_plain  # noqa: E402
from tests.conformance.scenario import (  # noqa: E402
    Plain,
    Scenario,
    ScenarioProxy,
    find_scenarios,
    load_scenario,
)
from tests.conformance.xds import MESHES  # noqa: E402

FLAGS = ("grpcAddr", "httpAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")
VARIABLES = {
    "PILOT_DEBOUNCE_AFTER": "20ms",
    "PILOT_ENABLE_AMBIENT": "true",
    "PILOT_ENABLE_ALPHA_GATEWAY_API": "true",
    "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "false",
    "POD_NAMESPACE": "istio-system",
}
NEEDS_RESTART = ("rootNamespace", "trustDomain", "trustDomainAliases")
"""Fields of the mesh config that istiod reads only when it starts."""
SETTLED, LATER = 0.5, 4.0
"""Seconds after the last write in which both control planes apply it, and after which a difference is no delay."""
QUIET, LONG_QUIET, LIMIT = 0.3, 1.5, 10.0
ATTEMPTS = 40
"""Meshes that are tried to find the smallest one for a cause."""


Resources = dict[str, dict[str, Any]]
"""The packed resources of a proxy by type and name."""


class Difference(NamedTuple):
    """A difference of one proxy. `cause` is the same for all differences that probably have the same reason.

    `row` is the row of docs/differences.md that explains it, or "".
    """

    cause: str
    proxy: str
    text: str
    row: str


class Plane(Process):
    """A control plane that reads the cluster and the same two files as the other one."""

    def __init__(self, name: str, command: Sequence[str], kubeconfig: pathlib.Path, folder: pathlib.Path) -> None:
        self._settings = name, command, kubeconfig, folder
        self.ports = {flag: free_port() for flag in FLAGS}
        arguments = [*command, "discovery", f"--kubeconfig={kubeconfig}", "--ctrlz_port=0"]
        arguments += [f"--{flag}=127.0.0.1:{port}" for flag, port in self.ports.items()]
        arguments += [f"--meshConfig={folder / 'mesh.yaml'}", f"--networksConfig={folder / 'networks.yaml'}"]
        variables = {**VARIABLES, "POD_NAME": name}
        super().__init__(arguments, folder / f"{name}.log", environ=variables, folder=folder)

    def wait_ready(self) -> None:
        def ready() -> bool:
            self.check_alive()
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['httpAddr']}/ready", timeout=2) as response:
                return bool(response.status == 200)

        eventually(ready, 120, "control plane ready")

    async def restart(self) -> Plane:
        """Stop the process, and return a new one that is ready."""
        await asyncio.to_thread(self.stop)
        plane = Plane(*self._settings)
        await asyncio.to_thread(plane.wait_ready)
        return plane

    async def resources(self, proxies: Sequence[ScenarioProxy], quiet: float) -> dict[str, Resources]:
        """Return the packed resources of proxies that connect now, after `quiet` seconds without an update."""
        async with contextlib.AsyncExitStack() as stack:
            clients = []
            for proxy in proxies:
                address = f"127.0.0.1:{self.ports['grpcAddr']}"
                channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS))
                clients.append(AdsClient(proxy, channel))
                stack.push_async_callback(clients[-1].close)
            await asyncio.gather(*(client.settle(quiet, LIMIT) for client in clients))
            return {client.proxy.name: {k: dict(v) for k, v in client.resources.items()} for client in clients}


class Comparison:
    """Both control planes, and the mesh that they read now.

    `stale` counts the meshes whose differences from istiod disappeared when both control planes were restarted.
    """

    def __init__(self, cluster: RealMesh, reference: Plane, ours: Plane, folder: pathlib.Path) -> None:
        self._cluster, self.reference, self.ours, self._folder = cluster, reference, ours, folder
        self.rejected = self.stale = 0

    async def differences(self, mesh: Scenario) -> dict[str, Difference]:
        """Return the lasting differences of a mesh by cause. Unexplained ones remain after a restart."""
        self._write_mesh_config(mesh)
        self.rejected += len(await self._cluster.replace(mesh.objects))
        await asyncio.sleep(SETTLED)
        differences, _ = await self._compare(mesh, QUIET)
        if not all(d.row for d in differences):
            await asyncio.sleep(LATER)
            differences, ours = await self._compare(mesh, LONG_QUIET)
            if not all(d.row for d in differences):
                differences = await self._compare_again(mesh, ours)
        return {d.cause: d for d in sorted(differences, key=lambda d: not d.row)}

    async def _compare_again(self, mesh: Scenario, before: dict[str, Resources]) -> list[Difference]:
        """Restart both control planes, and return their differences, and those of ours `before` the restart."""
        self.reference, self.ours = await asyncio.gather(self.reference.restart(), self.ours.restart())
        differences, ours = await self._compare(mesh, LONG_QUIET)
        self.stale += all(d.row for d in differences)
        for proxy in mesh.proxies:
            changes = compare_proxy(proxy, (), before[proxy.name], ours[proxy.name])
            differences += [d._replace(cause=f"restart of ours: {d.cause}", row="") for d in changes]
        return differences

    def stop(self) -> None:
        """Stop both control planes."""
        self.reference.stop()
        self.ours.stop()

    async def revive(self) -> str:
        """Start a new istiod if it has ended. Return the reason, or an empty string."""
        if self.reference.child.poll() is None:
            return ""
        reason = next(
            (row for row in self.reference.log.read_text(errors="replace").splitlines() if "panic" in row), ""
        )
        self.reference = await self.reference.restart()
        return f"istiod ended: {reason}"

    def _write_mesh_config(self, mesh: Scenario) -> None:
        config = yaml.safe_load(mesh.mesh_config) if mesh.mesh_config else {}
        config = {name: value for name, value in config.items() if name not in NEEDS_RESTART}
        for name, text in (("mesh.yaml", yaml.safe_dump(config)), ("networks.yaml", mesh.mesh_networks or "{}")):
            path = self._folder / name
            if not path.exists() or path.read_text() != text:
                path.write_text(text)

    async def _compare(self, mesh: Scenario, quiet: float) -> tuple[list[Difference], dict[str, Resources]]:
        """Return the differences of a mesh, and our resources."""
        planes = self.reference, self.ours
        reference, ours = await asyncio.gather(*(plane.resources(mesh.proxies, quiet) for plane in planes))
        return [
            difference
            for proxy in mesh.proxies
            for difference in compare_proxy(proxy, mesh.objects, reference[proxy.name], ours[proxy.name])
        ], ours


def compare_proxy(proxy: ScenarioProxy, objects: Sequence[Plain], reference: Any, ours: Any) -> list[Difference]:
    """Return the differences of one proxy's resources in a mesh of these objects."""
    differences: list[Difference] = []
    plain = [
        {kind: {n: to_plain(v) for n, v in rows.items()} for kind, rows in side.items() if kind in ("LDS", "CDS")}
        for side in (reference, ours)
    ]
    for kind in reference.keys() | ours.keys():
        theirs, mine = reference.get(kind, {}), ours.get(kind, {})
        names = theirs.keys() | mine.keys()
        if kind in ("RDS", "EDS"):
            names &= referenced_names(plain[0], kind) | referenced_names(plain[1], kind)
        for name in sorted(names):
            a, b = theirs.get(name), mine.get(name)
            if a is None or b is None:
                state = "surplus" if a is None else "missing"
                cause = f"{proxy.type} {kind} {state} {generalize(name)}"
                change = Change(objects, a and to_plain(a), b and to_plain(b), name=name)
                differences.append(Difference(cause, proxy.name, name, explanation(cause, change)))
            elif a.value != b.value:
                differences += _changed(proxy, kind, Change(objects, to_plain(a), to_plain(b), name=name))
    return differences


def _changed(proxy: ScenarioProxy, kind: str, change: Change) -> list[Difference]:
    """Return the difference of a resource, whose cause is its first path that differs."""
    left, right = leaves_of(change.theirs), leaves_of(change.ours)
    texts = {
        path: f"{path}: istiod {_show(left, path)}, here {_show(right, path)}"
        for path in sorted(left.keys() | right.keys())
        if left.get(path, left) != right.get(path, right)
    }
    change = change._replace(texts=[change.name, *texts.values()])
    rows = {path: explanation(f"{proxy.type} {kind} {generalize(path)}", change) for path in texts}
    paths = [path for path, row in rows.items() if not row] or list(texts)
    text = f"{change.name}: {len(paths)} paths\n        " + "\n        ".join(texts[path] for path in paths[:4])
    return [Difference(f"{proxy.type} {kind} {generalize(p)}", proxy.name, text, rows[p]) for p in paths[:1]]


def _show(leaves: dict[str, Any], path: str) -> str:
    return repr(leaves[path])[:300] if path in leaves else "(absent)"


def generalize(path: str) -> str:
    """Return a path or name without the parts that depend on the mesh: names of hosts and objects, and numbers."""
    path = re.sub(r"\[(?!envoy\.|istio[._]|istio-)[^\]]*\]", "[]", path)
    path = re.sub(r"(\d{1,3}\.){3}\d{1,3}(_\d+)?", "IP", path)
    return re.sub(r"[\w*.-]+\.(svc\.cluster\.local|example|com|org|local|internal)\b|\d+", "*", path)


async def minimal(comparison: Comparison, mesh: Scenario, difference: Difference) -> Scenario:
    """Return a mesh with fewer objects and one proxy that still has a cause."""
    proxies = [proxy for proxy in mesh.proxies if proxy.name == difference.proxy]
    mesh = dataclasses.replace(mesh, proxies=proxies)
    size, attempts = max(1, len(mesh.objects) // 2), 0
    while attempts < ATTEMPTS:
        start = 0
        while start < len(mesh.objects) and attempts < ATTEMPTS:
            fewer = dataclasses.replace(mesh, objects=[*mesh.objects[:start], *mesh.objects[start + size :]])
            attempts += 1
            with contextlib.suppress(TimeoutError, grpc.RpcError):
                if difference.cause in await comparison.differences(fewer):
                    mesh = fewer
                    continue
            start += size
        if size == 1:
            break
        size = max(1, size // 2)
    return mesh


def write_case(path: pathlib.Path, mesh: Scenario, difference: Difference) -> None:
    proxies = [{"name": p.name, "delta": p.is_delta, "node": p.node, "types": list(p.types)} for p in mesh.proxies]
    header = json.dumps({"cause": difference.cause, "text": difference.text, "mesh": mesh.name, "proxies": proxies})
    objects = yaml.safe_dump_all(json.loads(json.dumps([*mesh.objects], default=str)))
    path.write_text(f"# {header}\n# mesh config: {json.dumps(mesh.mesh_config)}\n{objects}")


def read_case(path: pathlib.Path) -> Scenario:
    """Return the mesh of a cause that `write_case` wrote."""
    text = path.read_text()
    header, config = text.splitlines()[:2]
    rows = json.loads(header[2:])["proxies"]
    proxies = [ScenarioProxy(p["name"], p["delta"], tuple(p["types"]), p["node"]) for p in rows]
    objects = [o for o in yaml.safe_load_all(text) if o]
    return Scenario(path, objects, {}, json.loads(config.removeprefix("# mesh config: ")), "", proxies, [])


async def replay(comparison: Comparison, paths: Sequence[pathlib.Path]) -> bool:
    """Compare the meshes of causes again, and return whether all of their causes are explained or gone."""
    remaining = 0
    for path in paths:
        differences = await comparison.differences(read_case(path))
        print(f"{path.name}: {len(differences)} causes", flush=True)
        for cause, difference in differences.items():
            remaining += not difference.row
            print(f"  {difference.row or 'UNEXPLAINED'} | {cause}\n      {difference.text}", flush=True)
    return not remaining


async def explore(comparison: Comparison, options: argparse.Namespace) -> bool:
    """Compare random meshes, and return whether all causes in the last 500 are explained."""
    paths = find_scenarios([MESHES, *options.scenarios], options.words)
    rng = random.Random(options.seed)
    meshes = RandomMeshes([load_scenario(path) for path in paths], rng, whole_patches=True)
    causes: collections.Counter[str] = collections.Counter()
    last: dict[str, int] = {}
    deadline, number, equal = time.monotonic() + options.seconds, 0, 0
    mesh = meshes.mesh(0)

    def recent() -> list[str]:
        return [cause for cause, seen in last.items() if seen > number - 500]

    def summary() -> str:
        return (
            f"{number} meshes, {equal} without unexplained differences, {comparison.stale} equal only after a restart, "
            f"{len(last)} unexplained causes, {len(recent())} of them in the last 500, "
            f"{comparison.rejected} objects rejected by the server"
        )

    while number < options.meshes and time.monotonic() < deadline:
        number += 1
        mesh = meshes.mesh(rng.randint(0, 5)) if number % 4 == 1 else meshes.edit(mesh)
        try:
            differences = await comparison.differences(mesh)
        except (TimeoutError, grpc.RpcError) as error:
            number -= 1
            reason = await comparison.revive() or f"{type(error).__name__} {str(error)[:200]}"
            print(f"{number} {mesh.name} not compared: {reason}", flush=True)
            continue
        equal += all(difference.row for difference in differences.values())
        for cause, difference in differences.items():
            causes[difference.row or f"UNEXPLAINED {cause}"] += 1
            if difference.row:
                continue
            is_new = cause not in last
            last[cause] = number
            if is_new:
                print(f"{number} {mesh.name} {difference.proxy} | {cause}\n      {difference.text}", flush=True)
                path = options.out / f"{number:05}-{hashlib.sha256(cause.encode()).hexdigest()[:8]}.yaml"
                if options.minimize:
                    mesh_of_cause = await minimal(comparison, mesh, difference)
                    print(f"      {len(mesh_of_cause.objects)} objects: {path}", flush=True)
                    write_case(path, mesh_of_cause, difference)
                else:
                    write_case(path, mesh, difference)
        if number % 20 == 0:
            print(summary(), flush=True)
    for cause, count in causes.most_common():
        print(f"{count:5}  {cause}")
    print(summary())
    return not recent()


async def run(options: argparse.Namespace, folder: pathlib.Path) -> bool:
    register_messages()
    async with contextlib.AsyncExitStack() as closing:
        server = RealApiServer(options.binaries, folder)
        closing.callback(server.stop)
        server.wait_ready()
        (folder / "mesh.yaml").write_text("{}\n")
        (folder / "networks.yaml").write_text("{}\n")
        kubeconfig = server.kubeconfig()
        cluster = RealMesh(str(kubeconfig))
        closing.push_async_callback(cluster.close)
        await write_definitions(cluster, options.crds)
        reference = Plane("reference", [str(options.binaries / "pilot-discovery")], kubeconfig, folder)
        ours = Plane("ours", [str(pathlib.Path(sys.executable).parent / "pilot-discovery")], kubeconfig, folder)
        comparison = Comparison(cluster, reference, ours, folder)
        closing.callback(comparison.stop)
        await asyncio.to_thread(reference.wait_ready)
        await asyncio.to_thread(ours.wait_ready)
        return await (replay(comparison, options.replay) if options.replay else explore(comparison, options))


async def write_definitions(cluster: RealMesh, paths: Sequence[pathlib.Path]) -> None:
    """Write the CustomResourceDefinitions in files and the root namespace, and wait until the kinds are served."""
    documents = [d for path in paths for d in yaml.safe_load_all(path.read_text())]
    definitions = [d for d in documents if d and d["kind"] == "CustomResourceDefinition"]
    for definition in definitions:
        definition.pop("status", None)
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}}
    await cluster.write([*definitions, system])
    await cluster.wait_for_kinds(definitions)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="cross scenarios whose names contain one of these words")
    parser.add_argument("--binaries", type=pathlib.Path, required=True)
    parser.add_argument("--crds", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--scenarios", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--meshes", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minimize", action="store_true", help="find the smallest mesh of each cause")
    parser.add_argument("--replay", type=pathlib.Path, nargs="+", default=[], help="meshes of causes to compare again")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the meshes of causes")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="against-reference-") as folder:
        return 0 if asyncio.run(run(options, pathlib.Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Load the resources of random valid meshes into a stock Envoy, and print what it rejects.

    python bench/accept_meshes.py [--meshes 1000] [--seconds 7200] [--seed 1] [--out FOLDER]

The meshes are crossings and edits of those in tests/conformance and in the folders of --scenarios. One control plane
reads them all, and an Envoy starts for one proxy of each mesh. Each rejection is printed once for all meshes with the same message, and its mesh is written to the
folder of --out. The last line has the number of rejections. It needs root and `unshare`, as the comparison `envoy`.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import dataclasses
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import time

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from testing.processes.process import envoy_binary  # noqa: E402
from tests.conformance.envoy import STEP_SECONDS, Outcome, agent, prepared_host, run_proxy  # noqa: E402
from tests.conformance.random_meshes import RandomMeshes  # noqa: E402
from tests.conformance.scenario import Scenario, find_scenarios, load_scenario  # noqa: E402
from tests.conformance.server import Server  # noqa: E402
from tests.conformance.xds import MESHES  # noqa: E402

VARIABLES = {
    "PILOT_ENABLE_AMBIENT": "true",
    "PILOT_ENABLE_ALPHA_GATEWAY_API": "true",
    "PILOT_ENABLE_QUIC_LISTENERS": "true",
    "ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS": "true",
}
NAMESPACE = "PYISTIOD_ACCEPT_NAMESPACE"
"""Set in the process that runs in a separate network namespace."""
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\d+|[\w-]+(\.[\w-]+){2,}")


async def search(options: argparse.Namespace) -> bool:
    """Run random meshes, print every kind of rejection once, and return whether there were none."""
    rng = random.Random(options.seed)
    paths = find_scenarios([MESHES, *options.scenarios], options.words)
    meshes = RandomMeshes([load_scenario(path) for path in paths], rng)
    with tempfile.TemporaryDirectory(prefix="accept-meshes-") as folder:
        work = pathlib.Path(folder)
        first = dataclasses.replace(meshes.mesh(0), mesh_config="{}\n", mesh_networks="{}\n", environ=VARIABLES)
        server = Server(first, work)
        try:
            await server.wait_ready()
            async with agent(work / "agent.sock"):
                return await _search(meshes, rng, server, work, options)
        finally:
            await server.stop()


async def _search(
    meshes: RandomMeshes, rng: random.Random, server: Server, work: pathlib.Path, options: argparse.Namespace
) -> bool:
    causes: collections.Counter[str] = collections.Counter()
    deadline, number, accepted = time.monotonic() + options.seconds, 0, 0
    while number < options.meshes and time.monotonic() < deadline:
        mesh = meshes.mesh(rng.randint(0, 8))
        envoys = [proxy for proxy in mesh.proxies if proxy.type != "ztunnel"]
        if not envoys:
            continue
        number += 1
        mesh = dataclasses.replace(mesh, proxies=[rng.choice(envoys)], folder=work)
        outcome = await accept(mesh, server, work, options)
        accepted += outcome.accepted
        for message in outcome.messages:
            cause = _VARIABLE.sub("*", message)[:160]
            causes[cause] += 1
            if causes[cause] == 1:
                print(f"{number} {mesh.proxies[0].name} {message}", flush=True)
                write_mesh(options.out / f"{number:05}.json", mesh)
        if number % 20 == 0:
            print(f"{number} meshes, {accepted} updates accepted, {len(causes)} kinds of rejections", flush=True)
    print(f"{number} meshes, {accepted} updates accepted, {sum(causes.values())} messages of {len(causes)} kinds")
    return not causes


async def accept(mesh: Scenario, server: Server, work: pathlib.Path, options: argparse.Namespace) -> Outcome:
    """Write the objects of a mesh, and run an Envoy for its proxy once they are in force."""
    plain = json.loads(json.dumps(list(mesh.objects), default=str))
    (work / "config.yaml").write_text(yaml.safe_dump_all(plain))
    (work / "mesh.yaml").write_text(mesh.mesh_config or "{}\n")
    (work / "networks.yaml").write_text(mesh.mesh_networks or "{}\n")
    server.write(mesh.objects)
    await asyncio.sleep(STEP_SECONDS)
    with prepared_host(mesh):
        try:
            return await run_proxy(mesh, mesh.proxies[0], server, work, options)
        except (RuntimeError, OSError) as error:
            return Outcome(0, 0, [f"{type(error).__name__}: {error}"])


def write_mesh(path: pathlib.Path, mesh: Scenario) -> None:
    """Write a mesh whose resources were rejected."""
    content = {
        "proxies": [proxy.node for proxy in mesh.proxies],
        "mesh_config": mesh.mesh_config,
        "environ": mesh.environ,
        "objects": mesh.objects,
    }
    path.write_text(json.dumps(content, indent=1, default=str))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="cross scenarios whose names contain one of these words")
    parser.add_argument("--scenarios", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--meshes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "rejected-meshes")
    parser.add_argument("--quiet", type=float, default=0.6, help="seconds without an update that end a mesh")
    parser.add_argument("--limit", type=float, default=15, help="seconds that a mesh may take")
    options = parser.parse_args()
    if os.environ.get(NAMESPACE) != "1":
        os.environ[NAMESPACE] = "1"
        shell = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        os.execvp("unshare", ["unshare", "--net", *shell, sys.executable, *sys.argv])
    options.out.mkdir(parents=True, exist_ok=True)
    options.envoy = envoy_binary()
    return 0 if asyncio.run(search(options)) else 1


if __name__ == "__main__":
    sys.exit(main())

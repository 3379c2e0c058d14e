"""Runs the conformance suite of the Gateway API: `python -m tests.cluster.gateway_api [--box] [--channel standard]`.

Without `--box`, it runs on the cluster of KUBECONFIG, which needs the CustomResourceDefinitions of the channel and the
control plane. With `--box`, a cluster without container runtime is made and the control plane is installed on it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import subprocess
import sys

from tests.cluster.box.box import Box
from tests.cluster.box.namespaces import in_namespaces
from tests.cluster.box.programs import reason_to_skip
from tests.cluster.gateway_api.suite import (
    CHANNELS,
    GATEWAY_PROFILES,
    ISTIO_ECHO,
    MESH_PROFILES,
    build_programs,
    command,
    run_in_box,
)

INSIDE = "--inside"


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.gateway_api", description=__doc__)
    parser.add_argument("--box", action="store_true", help="make a cluster, as root")
    parser.add_argument("--channel", choices=CHANNELS, default="standard")
    parser.add_argument("--profile", action="append", choices=(*GATEWAY_PROFILES, *MESH_PROFILES))
    parser.add_argument("--test", default="", help="run one test")
    parser.add_argument("--report", type=pathlib.Path, default=pathlib.Path("conformance.yaml"))
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


async def _run_in_box(chosen: argparse.Namespace) -> int:
    """Run the suite on a new cluster."""
    async with Box() as box:
        code = await run_in_box(box, chosen.channel, _profiles(chosen), chosen.report, chosen.test)
        if code:
            print(await box.describe(), file=sys.stderr)
        return code


def _profiles(chosen: argparse.Namespace) -> list[str]:
    return chosen.profile or [*GATEWAY_PROFILES, *MESH_PROFILES]


def main() -> None:
    """Run the suite."""
    chosen = _parse(sys.argv[1:])
    if chosen.inside:
        sys.exit(asyncio.run(_run_in_box(chosen)))
    if chosen.box and (reason := reason_to_skip()):
        sys.exit(reason)
    is_mesh = not set(chosen.profile or MESH_PROFILES).isdisjoint(MESH_PROFILES)
    if is_mesh and chosen.profile and set(chosen.profile).isdisjoint(GATEWAY_PROFILES):
        sys.exit("the suite waits for the pods of the profiles of gateways: select one of these too with --profile")
    if chosen.box and is_mesh and ISTIO_ECHO not in os.environ:
        sys.exit(f"the profiles of the mesh need the folder {ISTIO_ECHO} with the programs of echo-advanced")
    build_programs()
    if chosen.box:
        words = [sys.executable, "-m", "tests.cluster.gateway_api", INSIDE, *sys.argv[1:]]
        sys.exit(subprocess.run(in_namespaces(*words), check=False).returncode)
    words = command(chosen.channel, _profiles(chosen), chosen.report, chosen.test)
    sys.exit(subprocess.run(words, check=False).returncode)


main()

"""Compare this control plane with recordings of istiod.

python -m tests.conformance              every comparison; exits 1 if one is below the share reached so far
python -m tests.conformance xds          the resources that proxies receive (CDS, LDS, …)
python -m tests.conformance envoy        whether a stock Envoy accepts these resources
python -m tests.conformance manifests    the objects that `pilotctl manifest generate` renders
python -m tests.conformance pages        debug pages and metrics
python -m tests.conformance injection    workloads that `pilotctl kube-inject` injects, of a folder of cases
python -m tests.conformance pack FOLDER  store the recording of a scenario

Words after a command choose scenarios, cases or pages by their names, and -v shows every difference. More scenarios are read
from the folders of --meshes, or of the variable PYISTIOD_CONFORMANCE_MESHES.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import sys
from types import ModuleType

from tests.conformance import envoy, injection, manifests, pages, recording, xds

COMPARISONS: dict[str, ModuleType] = {
    "xds": xds,
    "manifests": manifests,
    "pages": pages,
    "injection": injection,
    "envoy": envoy,
}
BY_DEFAULT = ("xds", "manifests", "pages")
MESHES = "PYISTIOD_CONFORMANCE_MESHES"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    folders = [pathlib.Path(folder) for folder in os.environ.get(MESHES, "").split(os.pathsep) if folder]
    for name, module in COMPARISONS.items():
        command = commands.add_parser(
            name, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(command)
        command.add_argument(
            "--meshes", type=pathlib.Path, action="append", default=folders, help="a folder of scenarios"
        )
        command.add_argument("-v", "--verbose", action="store_true", help="show every difference")
    commands.add_parser("pack").add_argument("folders", type=pathlib.Path, nargs="+")
    return parser


def compare(options: argparse.Namespace) -> bool:
    """Run one comparison, and return whether it passed."""
    result = COMPARISONS[options.command].run(options)
    return bool(asyncio.run(result) if asyncio.iscoroutine(result) else result)


def main() -> int:
    parser = make_parser()
    options = parser.parse_args()
    if options.command == "pack":
        for folder in options.folders:
            recording.pack(folder)
        return 0
    if options.command:
        return 0 if compare(options) else 1
    failed = []
    for name in BY_DEFAULT:
        print(f"== {name}", flush=True)
        if not compare(parser.parse_args([name])):
            failed.append(name)
    print("failed: " + ", ".join(failed) if failed else "passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

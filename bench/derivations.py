#!/usr/bin/env python3
"""What the derivations of a whole load shape cost, in one process and without a network.

    python bench/derivations.py --load FOLDER [--shape S3] [--typical | --filters 20] [--repeats 3] [--top 40] [--sort tottime] [--out FILE]

FOLDER holds the load programs (mesh.py). The objects of the shape are decoded and committed; then every proxy connects and all that it
is sent is derived. Printed are the CPU-seconds of the best of the repeats, how many nodes and edges there are then, which functions
have the most nodes, and a profile of one more run by cProfile (which makes Python code look about twice as slow as it is);
--out keeps it for other viewers of such files. --top 0 leaves the profile out.

With --typical it is all measured without and with twenty Telemetries and twenty EnvoyFilters (typical.py), alternately, and the ratio is
printed. With --filters there are so many EnvoyFilters besides, the first of which changes all clusters, all listeners and all routes of every
tenth proxy, and the others nothing of anybody; then an edit of it is timed as well.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import importlib
import pathlib
import pstats
import sys
import time
from collections import Counter
from typing import Any

from envoy.config.core.v3 import base_pb2
from google.protobuf.json_format import ParseDict
from msgspec.structs import replace
from typical_objects import typical

from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.ingest.decode import decode_document
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.node import parse_node

Rows = dict[tuple[str, Any], Any]
MARK = "PATCHED"  # in the metadata of the proxies that an EnvoyFilter is for


def programs_of(load: pathlib.Path) -> Any:
    sys.path.insert(0, str(load))
    return importlib.import_module("mesh")


def decoded(objects: list[dict[str, Any]]) -> Rows:
    return {(entry.table, entry.key): entry.object for plain in objects for entry in decode_document(plain).entries}


def typical_rows(load: pathlib.Path, name: str) -> Rows:
    """The rows of what a mesh of a shape typically has besides."""
    programs = programs_of(load)
    shape = programs.SHAPES[name]
    return decoded(
        typical(
            [programs.namespace_name(n) for n in range(shape.namespaces)],
            [programs.app_name(n) for n in range(shape.services)],
        )
    )


def read_shape(load: pathlib.Path, name: str) -> tuple[Rows, list[tuple[str, Proxy]]]:
    """The rows and the proxies of a shape."""
    programs = programs_of(load)
    shape = programs.SHAPES[name]
    rows = decoded(programs.objects(shape))
    chosen = programs.pods(shape)[:: max(1, len(programs.pods(shape)) // shape.proxies)][: shape.proxies]
    return rows, [(said["id"], parse_node(ParseDict(said, base_pb2.Node()))) for said in map(programs.node, chosen)]


def filtered(count: int, timeout: str = "3s") -> Rows:
    """EnvoyFilters of the root namespace: the first for proxies that are marked, the others for proxies of a version that there is none of."""
    found: Rows = {}
    for number in range(count):
        proxy = {"metadata": {MARK: "yes"}} if not number else {"proxyVersion": "^never"}
        to_routes = {"request_headers_to_remove": ["x"]}
        values = (
            ("CLUSTER", {"connect_timeout": timeout}),
            ("LISTENER", {"tcp_backlog_size": 7}),
            ("ROUTE_CONFIGURATION", to_routes),
        )
        patches = [
            {"applyTo": to, "match": {"proxy": proxy}, "patch": {"operation": "MERGE", "value": value}}
            for to, value in values
        ]
        metadata = {"name": f"filter-{number}", "namespace": "istio-system"}
        plain = {
            "apiVersion": "networking.istio.io/v1alpha3",
            "kind": "EnvoyFilter",
            "metadata": metadata,
            "spec": {"configPatches": patches},
        }
        found |= decoded([plain])
    return found


def marked(proxies: list[tuple[str, Proxy]]) -> list[tuple[str, Proxy]]:
    """The proxies, every tenth of them with the mark."""
    return [
        (key, replace(p, metadata={**p.metadata, MARK: "yes"}) if not number % 10 else p)
        for number, (key, p) in enumerate(proxies)
    ]


def time_edit(db: Mesh) -> tuple[float, int]:
    """CPU-seconds of an edit of the first EnvoyFilter, until all that it reaches is up to date, and the nodes that it ran."""
    started, runs = time.process_time(), db.runs
    reached = db.commit([(db.tables[table], key, row) for (table, key), row in filtered(1, "4s").items()])
    for node in reached:
        db.refresh(node)
    return time.process_time() - started, db.runs - runs


def derive_everything(rows: Rows, proxies: list[tuple[str, Proxy]]) -> Mesh:
    """A mesh with all rows, whose proxies have connected one after the other and have been given all that is theirs."""
    db = Mesh()
    mesh, _ = decode_mesh_config([])
    db.commit([(db.mesh, "mesh", mesh), (db.mesh, "networks", MeshNetworks())])
    db.commit([(db.tables[table], key, row) for (table, key), row in rows.items()])
    for node_id, proxy in proxies:
        db.commit([(db.proxies, node_id, proxy)])
        for groups in db.watch(proxy_plan, node_id).value.groups.values():
            for group in groups:
                db.watch(group.fn, *group.args)
    return db


def timed(rows: Rows, proxies: list[tuple[str, Proxy]]) -> tuple[float, Mesh]:
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 100, 100)
    started = time.process_time()
    db = derive_everything(rows, proxies)
    return time.process_time() - started, db


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--load", type=lambda p: pathlib.Path(p).resolve(), required=True, help="folder of the load programs"
    )
    parser.add_argument("--shape", default="S3")
    parser.add_argument("--typical", action="store_true")
    parser.add_argument("--filters", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--top", type=int, default=40)
    parser.add_argument("--sort", default="tottime")
    parser.add_argument("--out")
    options = parser.parse_args()
    rows, proxies = read_shape(options.load, options.shape)
    plain, rows, proxies = rows, {**rows, **filtered(options.filters)}, marked(proxies)
    if options.typical:
        rows = {**plain, **typical_rows(options.load, options.shape)}
    without, best, db = float("inf"), float("inf"), Mesh()
    for _ in range(options.repeats):
        if options.typical:
            without = min(without, timed(plain, proxies)[0])
        best, db = min((best, db), timed(rows, proxies), key=lambda pair: pair[0])
    edges = sum(len(list(node.inputs())) for node in db.live_nodes())
    print(
        f"{options.shape}: {best:.3f} CPU-s for {len(proxies)} proxies, {len(db)} nodes, {edges} edges, {db.failures} failures"
    )
    if options.typical:
        print(f"without Telemetries and EnvoyFilters {without:.3f} CPU-s: ratio {best / without:.2f}")
    if options.filters:
        seconds, runs = time_edit(db)
        print(f"an edit of an EnvoyFilter for every tenth proxy: {seconds:.3f} CPU-s, {runs} nodes")
    for name, count in Counter(node.fn.__name__ for node in db.live_nodes()).most_common(options.top):
        print(f"{count:8} {count / len(proxies):7.2f} a proxy  {name}")
    if options.top:
        profile = cProfile.Profile()
        profile.runcall(derive_everything, rows, proxies)
        pstats.Stats(profile).sort_stats(options.sort).print_stats(options.top)
        if options.out:
            profile.dump_stats(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

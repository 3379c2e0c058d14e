#!/usr/bin/env python3
"""Measure the CPU time of all derivations for a load shape, in one process and without a network.

    python bench/derivations.py --load FOLDER [--shape S3] [--typical | --filters 20] [--repeats 3] [--top 40]
                                [--sort tottime] [--out FILE]

FOLDER contains the load programs (mesh.py). The objects of the shape are decoded and committed. Then every proxy
connects, and all of its resources are derived. The output has the CPU-seconds of the best repeat, the number of nodes
and edges, the functions with the most nodes, and a cProfile of another run, which makes Python code appear about twice
as slow. --out saves the profile. --top 0 omits it.

--typical measures alternately without and with 20 Telemetries and 20 EnvoyFilters (typical_objects.py), and prints the
ratio. --filters adds EnvoyFilters: the first changes all clusters, listeners and routes of every tenth proxy, the
others match no proxy. An edit of the first is also measured.
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
from typical_objects import typical_objects

from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.ingest.decode import decode_document
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.node import parse_node

Rows = dict[tuple[str, Any], Any]
MARK = "PATCHED"  # metadata of the proxies that match an EnvoyFilter


def programs_of(load: pathlib.Path) -> Any:
    sys.path.insert(0, str(load))
    return importlib.import_module("mesh")


def decoded(objects: list[dict[str, Any]]) -> Rows:
    return {(entry.table, entry.key): entry.object for plain in objects for entry in decode_document(plain).entries}


def typical_rows(load: pathlib.Path, name: str) -> Rows:
    """Return the rows of the typical objects for a shape."""
    programs = programs_of(load)
    shape = programs.SHAPES[name]
    return decoded(
        typical_objects(
            [programs.namespace_name(n) for n in range(shape.namespaces)],
            [programs.app_name(n) for n in range(shape.services)],
        )
    )


def read_shape(load: pathlib.Path, name: str) -> tuple[Rows, list[tuple[str, Proxy]]]:
    """Return the rows and the proxies of a shape."""
    programs = programs_of(load)
    shape = programs.SHAPES[name]
    rows = decoded(programs.objects(shape))
    pods = programs.pods(shape)[:: max(1, len(programs.pods(shape)) // shape.proxies)][: shape.proxies]
    return rows, [(node["id"], parse_node(ParseDict(node, base_pb2.Node()))) for node in map(programs.node, pods)]


def filter_rows(count: int, timeout: str = "3s") -> Rows:
    """Return EnvoyFilters of the root namespace.

    The first is for marked proxies, the others for a version that no proxy has.
    """
    rows: Rows = {}
    for number in range(count):
        proxy = {"metadata": {MARK: "yes"}} if not number else {"proxyVersion": "^never"}
        to_routes = {"request_headers_to_remove": ["x"]}
        values = (
            ("CLUSTER", {"connect_timeout": timeout}),
            ("LISTENER", {"tcp_backlog_size": 7}),
            ("ROUTE_CONFIGURATION", to_routes),
        )
        patches = [
            {"applyTo": apply_to, "match": {"proxy": proxy}, "patch": {"operation": "MERGE", "value": value}}
            for apply_to, value in values
        ]
        metadata = {"name": f"filter-{number}", "namespace": "istio-system"}
        plain = {
            "apiVersion": "networking.istio.io/v1alpha3",
            "kind": "EnvoyFilter",
            "metadata": metadata,
            "spec": {"configPatches": patches},
        }
        rows |= decoded([plain])
    return rows


def with_marks(proxies: list[tuple[str, Proxy]]) -> list[tuple[str, Proxy]]:
    """Return the proxies, with a mark on every tenth."""
    return [
        (key, replace(p, metadata={**p.metadata, MARK: "yes"}) if not number % 10 else p)
        for number, (key, p) in enumerate(proxies)
    ]


def time_edit(db: Mesh) -> tuple[float, int]:
    """Return the CPU-seconds until an edit of the first EnvoyFilter has taken effect, and the number of nodes that ran."""
    started, runs = time.process_time(), db.runs
    affected = db.commit([(db.tables[table], key, row) for (table, key), row in filter_rows(1, "4s").items()])
    for node in affected:
        db.refresh(node)
    return time.process_time() - started, db.runs - runs


def derive_everything(rows: Rows, proxies: list[tuple[str, Proxy]]) -> Mesh:
    """Return a mesh with all rows, after all proxies have connected one by one."""
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


def time_derivation(rows: Rows, proxies: list[tuple[str, Proxy]]) -> tuple[float, Mesh]:
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
    parser.add_argument("--shape", default="S3", help="load shape (default S3)")
    parser.add_argument("--typical", action="store_true", help="compare with and without typical objects")
    parser.add_argument("--filters", type=int, default=0, help="number of additional EnvoyFilters")
    parser.add_argument("--repeats", type=int, default=3, help="number of runs; the best one counts")
    parser.add_argument("--top", type=int, default=40, help="number of functions to print")
    parser.add_argument("--sort", default="tottime", help="sort order of the profile")
    parser.add_argument("--out", help="file for the profile")
    options = parser.parse_args()
    rows, proxies = read_shape(options.load, options.shape)
    plain, rows, proxies = rows, {**rows, **filter_rows(options.filters)}, with_marks(proxies)
    if options.typical:
        rows = {**plain, **typical_rows(options.load, options.shape)}
    without, best, db = float("inf"), float("inf"), Mesh()
    for _ in range(options.repeats):
        if options.typical:
            without = min(without, time_derivation(plain, proxies)[0])
        best, db = min((best, db), time_derivation(rows, proxies), key=lambda pair: pair[0])
    edges = sum(len(list(node.inputs())) for node in db.live_nodes())
    print(
        f"{options.shape}: {best:.3f} CPU-s, {len(proxies)} proxies, {len(db)} nodes, {edges} edges, {db.failures} failures"
    )
    if options.typical:
        print(f"without Telemetries and EnvoyFilters: {without:.3f} CPU-s, ratio {best / without:.2f}")
    if options.filters:
        seconds, runs = time_edit(db)
        print(f"edit of an EnvoyFilter for every tenth proxy: {seconds:.3f} CPU-s, {runs} nodes")
    for name, count in Counter(node.fn.__name__ for node in db.live_nodes()).most_common(options.top):
        print(f"{count:8} {count / len(proxies):7.2f} per proxy  {name}")
    if options.top:
        profile = cProfile.Profile()
        profile.runcall(derive_everything, rows, proxies)
        pstats.Stats(profile).sort_stats(options.sort).print_stats(options.top)
        if options.out:
            profile.dump_stats(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

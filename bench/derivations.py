#!/usr/bin/env python3
"""What the derivations of a whole load shape cost, in one process and without a network.

    python bench/derivations.py --load FOLDER [--shape S3] [--repeats 3] [--top 40] [--sort tottime] [--out FILE]

FOLDER holds the load programs (mesh.py). The objects of the shape are decoded and committed; then every proxy connects and all that it
is sent is derived. Printed are the CPU-seconds of the best of the repeats, how many nodes and edges there are then, which functions
have the most nodes, and a profile of one more run by cProfile (which makes Python code look about twice as slow as it is);
--out keeps it for other viewers of such files. --top 0 leaves the profile out.
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

from pilot.ingest.decode import decode_document
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.model.config.mesh_networks import MeshNetworks
from pilot.model.inputs import Mesh
from pilot.model.proxy import Proxy
from pilot.serve.node import parse_node
from pilot.translate.profile import plan

Rows = dict[tuple[str, Any], Any]


def read_shape(load: pathlib.Path, name: str) -> tuple[Rows, list[tuple[str, Proxy]]]:
    """The rows and the proxies of a shape."""
    sys.path.insert(0, str(load))
    programs = importlib.import_module("mesh")
    shape = programs.SHAPES[name]
    rows = {(entry.table, entry.key): entry.object for plain in programs.objects(shape) for entry in decode_document(plain).entries}
    chosen = programs.pods(shape)[:: max(1, len(programs.pods(shape)) // shape.proxies)][: shape.proxies]
    return rows, [(said["id"], parse_node(ParseDict(said, base_pb2.Node()))) for said in map(programs.node, chosen)]


def derive_everything(rows: Rows, proxies: list[tuple[str, Proxy]]) -> Mesh:
    """A mesh with all rows, whose proxies have connected one after the other and have been given all that is theirs."""
    db = Mesh()
    mesh, _ = decode_mesh_config([])
    db.commit([(db.mesh, "mesh", mesh), (db.mesh, "networks", MeshNetworks())])
    db.commit([(getattr(db, table), key, row) for (table, key), row in rows.items()])
    for node_id, proxy in proxies:
        db.commit([(db.proxies, node_id, proxy)])
        for groups in db.watch(plan, node_id).value.groups.values():
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
    parser.add_argument("--load", type=lambda p: pathlib.Path(p).resolve(), required=True, help="folder of the load programs")
    parser.add_argument("--shape", default="S3")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--top", type=int, default=40)
    parser.add_argument("--sort", default="tottime")
    parser.add_argument("--out")
    options = parser.parse_args()
    rows, proxies = read_shape(options.load, options.shape)
    best, db = min((timed(rows, proxies) for _ in range(options.repeats)), key=lambda pair: pair[0])
    edges = sum(len(list(node.inputs())) for node in db.live_nodes())
    print(f"{options.shape}: {best:.3f} CPU-s for {len(proxies)} proxies, {len(db)} nodes, {edges} edges, {db.failures} failures")
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

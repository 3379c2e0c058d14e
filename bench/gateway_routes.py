"""What an edit of one HTTPRoute costs on a Gateway with many: attach all, then edit one, in seconds of CPU of this process.

Every route has a host of its own, as those of many teams have: all routes of one host are one virtual host, which an edit of any of them builds
anew. `runs` are the derivations that an edit runs, which do not depend on the machine.

    python bench/gateway_routes.py --routes 100 1000 5000
"""
from __future__ import annotations

import argparse
import gc
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from pilot.lib.xds_types import ROUTE
from pilot.translate.profile import plan
from tests.support.gateway_slots import gateway_object
from tests.support.objects import make
from tests.support.world import World, proxy, rows_of

GATEWAY = "gatewayClassName: istio, addresses: [{type: Hostname, value: front}], listeners: [{name: http, port: 80, protocol: HTTP}]"


def route(number: int, path: str = "/") -> dict[str, object]:
    rules = f"rules: [{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: web, port: 80}}]}}]"
    return gateway_object("HTTPRoute", f"r{number}", f"parentRefs: [{{name: gw}}], hostnames: [h{number}.com], {rules}")


def measure(count: int, edits: int) -> tuple[float, float, int, float, int]:
    """Returns seconds to attach all, to derive what an edit changes, and the derivations that it runs; seconds to put the whole answer together, and
    its bytes."""
    world = World()
    world.set(
        rows_of(
            (
                make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}", "edge"),
                make("Service", "front", "{clusterIP: 10.96.0.2, selector: {app: f}, ports: [{name: http, port: 80}]}", "edge"),
                make("Pod", "f-0", "{}", "edge", labels="{app: f}"),
                gateway_object("Gateway", "gw", GATEWAY),
            )
        )
    )
    node_id = world.connect(proxy("router", "f-0", "edge", "10.1.0.1", {"app": "f"}))
    world.resources(node_id)
    rows = rows_of(route(n) for n in range(count))
    began = time.process_time()
    world.set(rows)
    world.resources(node_id)
    attached = time.process_time() - began
    derived, whole, size, runs = [], [], 0, 0
    gc.collect()
    gc.freeze()  # as the process does after its first load
    groups = plan(world.mesh, node_id).groups[ROUTE]
    nodes = [world.mesh.watch(group.fn, *group.args) for group in groups]
    for node in nodes:
        world.mesh.refresh(node)
    for n in range(edits):
        edited = rows_of([route(count // 2, f"/edit{n}")])
        before, began = world.mesh.runs, time.process_time()
        world.set(edited)
        for node in nodes:
            world.mesh.refresh(node)
        derived.append(time.process_time() - began)
        runs = world.mesh.runs - before
        began = time.process_time()
        size = sum(len(resource.any) for node in nodes for resource in node.value.values())
        whole.append(time.process_time() - began)
    gc.unfreeze()
    return attached, statistics.median(derived), runs, statistics.median(whole), size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--routes", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--edits", type=int, default=20)
    asked = parser.parse_args()
    print(f"{'routes':>7} {'attach s':>9} {'edit ms':>8} {'runs':>5} {'answer ms':>10} {'answer KB':>10}")
    for count in asked.routes:
        attached, edit, runs, whole, size = measure(count, asked.edits)
        print(f"{count:>7} {attached:>9.2f} {edit * 1000:>8.2f} {runs:>5} {whole * 1000:>10.2f} {size / 1000:>10.0f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measure the cost of changes in an ambient mesh with many ztunnels, in one process and without a network.

    python bench/ztunnels.py [--workloads 10000] [--ztunnels 50] [--services 500]

Each row is a change: the resources sent to one ztunnel, the number of ztunnels that received any, the total bytes, the
number of derivations that ran, and the CPU-milliseconds of the commit and of all responses. The last rows are
reconnecting ztunnels that announce their resources, and an edit of the same Pod in a mesh without ambient mode.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from envoy.service.discovery.v3 import discovery_pb2

from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.ingest.decode import decode_document
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.xds_types import ADDRESS, AUTHORIZATION
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import Mesh
from pilot.settings.parse import load
from pilot.xds.push.connection import Connection
from pilot.xds.push.discovery import Discovery
from pilot.xds.session.delta import DeltaSession

Plain = Mapping[str, Any]
WORKLOADS_PER_NODE = 100


def metadata(name: str, namespace: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "creationTimestamp": "2025-01-01T00:00:00Z", **more}


def pod(number: int, services: int, ready: bool = True) -> Plain:
    service = number % services
    labels = {"app": f"s{service}", "version": "v1", "pod-template-hash": f"h{service}"}
    ip = f"10.{10 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(
            f"s{service}-{number}",
            f"n{service % 20}",
            labels=labels,
            annotations={"ambient.istio.io/redirection": "enabled"},
        ),
        "spec": {"serviceAccountName": f"s{service}", "nodeName": f"node-{number // WORKLOADS_PER_NODE}"},
        "status": {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def service(number: int, port: int = 8080) -> Plain:
    spec = {"clusterIP": f"10.96.{number >> 8}.{number & 255}", "selector": {"app": f"s{number}"}}
    ports = [{"name": "http", "port": 80, "targetPort": port}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(f"s{number}", f"n{number % 20}"),
        "spec": {**spec, "ports": ports},
    }


def node(number: int, zone: str) -> Plain:
    labels = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": zone}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata(f"node-{number}", "", labels=labels)}


def policy(kind: str, spec: Plain, namespace: str = "n1") -> Plain:
    return {"apiVersion": "security.istio.io/v1", "kind": kind, "metadata": metadata("p", namespace), "spec": spec}


class ChangeCost(NamedTuple):
    """The cost of a change.

    `each` is the number of resources for the ztunnel that received most, `reached` the number of ztunnels that received
    any.
    """

    each: int
    reached: int
    size: int
    runs: int
    commit_seconds: float
    response_seconds: float


class Bench:
    """A mesh and its ztunnels, which read immediately."""

    def __init__(self, ambient: bool) -> None:
        self.db = Mesh(load([], {"PILOT_ENABLE_AMBIENT": "true"} if ambient else {}).settings.mesh)
        self.discovery = Discovery(self.db, Metrics(), proxy_plan, linger=0.0)
        self.connections: list[Connection] = []
        self.versions: dict[Connection, dict[str, dict[str, str]]] = {}
        self.nonces = 0

    def commit(self, objects: Iterable[Plain], delete: bool = False) -> None:
        entries = [entry for plain in objects for entry in decode_document(plain).entries]
        edits = [(self.db.tables[entry.table], entry.key, None if delete else entry.object) for entry in entries]
        self.discovery.wake(self.db.commit(edits), {"config": 1})

    def connect(self, number: int, resources: Mapping[str, Mapping[str, str]] | None = None) -> Connection:
        session = DeltaSession(self.discovery.name_sets)
        node_metadata = {"NODE_NAME": f"node-{number}", "NAMESPACE": "istio-system", "CLUSTER_ID": "Kubernetes"}
        ip = f"10.0.{number >> 8}.{number & 255}"
        proxy = Proxy(
            type=NodeType.ZTUNNEL,
            id=f"zt-{number}.istio-system",
            ips=(ip,),
            dns_domain="x",
            namespace="istio-system",
            metadata=node_metadata,
        )
        connection = self.discovery.connect(f"ztunnel~{ip}~{proxy.id}~x", proxy, "", session)
        for url in (ADDRESS, AUTHORIZATION):
            versions = resources[url] if resources is not None else {}
            session.receive(discovery_pb2.DeltaDiscoveryRequest(type_url=url, initial_resource_versions=versions))
        self.connections.append(connection)
        self.versions[connection] = {
            url: dict(resources[url]) if resources is not None else {} for url in (ADDRESS, AUTHORIZATION)
        }
        return connection

    def measure(self, change: Callable[[], object]) -> ChangeCost:
        """Return the cost of a change until every ztunnel has all of its resources."""
        runs, started = self.db.runs, time.process_time()
        change()
        commit_end = time.process_time()
        counts, size = [0] * len(self.connections), 0
        for place, connection in enumerate(self.connections):
            while (response := self.discovery.next_response(connection)) is not None:
                self.nonces += 1
                data = connection.session.encode(response, "v", str(self.nonces))
                connection.session.mark_sent(response, str(self.nonces), 0.0)
                counts[place] += response.resources + len(response.removed)
                size += len(data)
                versions = self.versions[connection][response.type_url]
                versions |= {r.name: r.version for payload in response.payloads for r in payload.resources}
                request = discovery_pb2.DeltaDiscoveryRequest(
                    type_url=response.type_url, response_nonce=str(self.nonces)
                )
                connection.session.receive(request)
        response_end = time.process_time()
        return ChangeCost(
            max(counts, default=0),
            sum(map(bool, counts)),
            size,
            self.db.runs - runs,
            commit_end - started,
            response_end - commit_end,
        )

    def reconnect_all(self) -> None:
        """Reconnect every ztunnel, which announces its resources."""
        announced = [self.versions[connection] for connection in self.connections]
        for connection in self.connections:
            self.discovery.remove(connection)
        self.connections, self.versions = [], {}
        for number, versions in enumerate(announced):
            self.connect(number, versions)


def show(name: str, cost: ChangeCost) -> None:
    numbers = (
        cost.each,
        cost.reached,
        cost.size,
        cost.runs,
        f"{1000 * cost.commit_seconds:.1f}",
        f"{1000 * cost.response_seconds:.1f}",
    )
    print(f"| {name} | {' | '.join(map(str, numbers))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=10_000, help="number of Pods (default 10000)")
    parser.add_argument("--services", type=int, default=500, help="number of services (default 500)")
    parser.add_argument("--ztunnels", type=int, default=50, help="number of ztunnels (default 50)")
    options = parser.parse_args()
    count, services = options.workloads, options.services
    objects = [pod(n, services) for n in range(count)] + [service(n) for n in range(services)]
    objects += [node(n, f"z{n % 3}") for n in range(count // WORKLOADS_PER_NODE + 1)]
    print("| change | resources each | ztunnels reached | total bytes | derivations run | commit ms | responses ms |")
    print("|---|---|---|---|---|---|---|")
    bench = Bench(ambient=True)
    show("create the mesh, without ztunnels", bench.measure(lambda: bench.commit(objects)))
    show("ztunnels connect", bench.measure(lambda: [bench.connect(n) for n in range(options.ztunnels)]))
    strict = {"selector": {"matchLabels": {"app": "s1"}}, "mtls": {"mode": "STRICT"}}
    deny = {"action": "DENY", "rules": [{"from": [{"source": {"namespaces": ["x"]}}]}]}
    changes: tuple[tuple[str, Callable[[], object]], ...] = (
        ("Pod becomes unready", lambda: bench.commit([pod(1, services, ready=False)])),
        ("Pod becomes ready", lambda: bench.commit([pod(1, services)])),
        ("Pod is created", lambda: bench.commit([pod(count, services)])),
        ("Pod is deleted", lambda: bench.commit([pod(count, services)], delete=True)),
        ("Pod is rewritten unchanged", lambda: bench.commit([pod(2, services)])),
        (f"port of a service with {count // services} Pods changes", lambda: bench.commit([service(1, 9090)])),
        (f"zone of a node with {WORKLOADS_PER_NODE} Pods changes", lambda: bench.commit([node(1, "z9")])),
        ("AuthorizationPolicy for a namespace", lambda: bench.commit([policy("AuthorizationPolicy", deny)])),
        (f"mutual TLS for {count // services} Pods", lambda: bench.commit([policy("PeerAuthentication", strict)])),
        ("all ztunnels reconnect", bench.reconnect_all),
    )
    for name, change in changes:
        show(name, bench.measure(change))
    plain = Bench(ambient=False)
    plain.commit(objects)
    show(
        "Pod becomes unready, without ambient mode",
        plain.measure(lambda: plain.commit([pod(1, services, ready=False)])),
    )


if __name__ == "__main__":
    main()

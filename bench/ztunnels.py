#!/usr/bin/env python3
"""What changes of an ambient mesh cost where many ztunnels are told of all of it, in one process and without a network.

    python bench/ztunnels.py [--workloads 10000] [--ztunnels 50] [--services 500]

A row for each change: the resources and the bytes that one ztunnel is sent, to how many of them, the derivations that ran, and the CPU-milliseconds
of the commit and of all responses. The last rows are of ztunnels that come back with what they had, and of an edit of the same pod in a mesh that
is not ambient.
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
WORKLOADS_A_NODE = 100


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
        "spec": {"serviceAccountName": f"s{service}", "nodeName": f"node-{number // WORKLOADS_A_NODE}"},
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


class Sent(NamedTuple):
    """What a change cost. `each`: resources to the ztunnel that got most; `reached`: how many got any."""

    each: int
    reached: int
    size: int
    runs: int
    committed: float
    answered: float


class Bench:
    """A mesh and its ztunnels, which read at once."""

    def __init__(self, ambient: bool) -> None:
        self.db = Mesh(load([], {"PILOT_ENABLE_AMBIENT": "true"} if ambient else {}).settings.mesh)
        self.discovery = Discovery(self.db, Metrics(), proxy_plan, linger=0.0)
        self.connections: list[Connection] = []
        self.versions: dict[Connection, dict[str, dict[str, str]]] = {}
        self.nonces = 0

    def commit(self, objects: Iterable[Plain], gone: bool = False) -> None:
        entries = [entry for plain in objects for entry in decode_document(plain).entries]
        edits = [(self.db.tables[entry.table], entry.key, None if gone else entry.object) for entry in entries]
        self.discovery.wake(self.db.commit(edits), {"config": 1})

    def connect(self, number: int, held: Mapping[str, Mapping[str, str]] | None = None) -> Connection:
        session = DeltaSession(self.discovery.name_sets)
        said = {"NODE_NAME": f"node-{number}", "NAMESPACE": "istio-system", "CLUSTER_ID": "Kubernetes"}
        ip = f"10.0.{number >> 8}.{number & 255}"
        proxy = Proxy(
            type=NodeType.ZTUNNEL,
            id=f"zt-{number}.istio-system",
            ips=(ip,),
            dns_domain="x",
            namespace="istio-system",
            metadata=said,
        )
        connection = self.discovery.connect(f"ztunnel~{ip}~{proxy.id}~x", proxy, "", session)
        for url in (ADDRESS, AUTHORIZATION):
            versions = held[url] if held is not None else {}
            session.receive(discovery_pb2.DeltaDiscoveryRequest(type_url=url, initial_resource_versions=versions))
        self.connections.append(connection)
        self.versions[connection] = {
            url: dict(held[url]) if held is not None else {} for url in (ADDRESS, AUTHORIZATION)
        }
        return connection

    def measure(self, change: Callable[[], object]) -> Sent:
        """What a change costs until every ztunnel has what it is to have."""
        runs, started = self.db.runs, time.process_time()
        change()
        committed = time.process_time()
        counts, size = [0] * len(self.connections), 0
        for place, connection in enumerate(self.connections):
            while (answer := self.discovery.next_response(connection)) is not None:
                self.nonces += 1
                data = connection.session.encode(answer, "v", str(self.nonces))
                connection.session.mark_sent(answer, str(self.nonces), 0.0)
                counts[place] += answer.resources + len(answer.removed)
                size += len(data)
                held = self.versions[connection][answer.type_url]
                held |= {r.name: r.version for payload in answer.payloads for r in payload.resources}
                request = discovery_pb2.DeltaDiscoveryRequest(type_url=answer.type_url, response_nonce=str(self.nonces))
                connection.session.receive(request)
        answered = time.process_time()
        return Sent(
            max(counts, default=0),
            sum(map(bool, counts)),
            size,
            self.db.runs - runs,
            committed - started,
            answered - committed,
        )

    def return_all(self) -> None:
        """Every stream ends, and every ztunnel comes back with what it has."""
        held = [self.versions[connection] for connection in self.connections]
        for connection in self.connections:
            self.discovery.remove(connection)
        self.connections, self.versions = [], {}
        for number, versions in enumerate(held):
            self.connect(number, versions)


def show(name: str, sent: Sent) -> None:
    numbers = (
        sent.each,
        sent.reached,
        sent.size,
        sent.runs,
        f"{1000 * sent.committed:.1f}",
        f"{1000 * sent.answered:.1f}",
    )
    print(f"| {name} | {' | '.join(map(str, numbers))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=10_000)
    parser.add_argument("--services", type=int, default=500)
    parser.add_argument("--ztunnels", type=int, default=50)
    asked = parser.parse_args()
    count, services = asked.workloads, asked.services
    objects = [pod(n, services) for n in range(count)] + [service(n) for n in range(services)]
    objects += [node(n, f"z{n % 3}") for n in range(count // WORKLOADS_A_NODE + 1)]
    print("| change | resources to each | ztunnels reached | bytes of all | derivations run | ms commit | ms answers |")
    print("|---|---|---|---|---|---|---|")
    bench = Bench(ambient=True)
    show("the mesh, without ztunnels", bench.measure(lambda: bench.commit(objects)))
    show("ztunnels connect", bench.measure(lambda: [bench.connect(n) for n in range(asked.ztunnels)]))
    strict = {"selector": {"matchLabels": {"app": "s1"}}, "mtls": {"mode": "STRICT"}}
    deny = {"action": "DENY", "rules": [{"from": [{"source": {"namespaces": ["x"]}}]}]}
    changes: tuple[tuple[str, Callable[[], object]], ...] = (
        ("a pod is not ready", lambda: bench.commit([pod(1, services, ready=False)])),
        ("a pod is ready again", lambda: bench.commit([pod(1, services)])),
        ("a pod comes", lambda: bench.commit([pod(count, services)])),
        ("a pod goes", lambda: bench.commit([pod(count, services)], gone=True)),
        ("a pod is written again, the same", lambda: bench.commit([pod(2, services)])),
        (f"a port of a service with {count // services} pods", lambda: bench.commit([service(1, 9090)])),
        (f"a node with {WORKLOADS_A_NODE} pods moves", lambda: bench.commit([node(1, "z9")])),
        ("a policy of a namespace", lambda: bench.commit([policy("AuthorizationPolicy", deny)])),
        (f"mutual TLS for {count // services} pods", lambda: bench.commit([policy("PeerAuthentication", strict)])),
        ("all ztunnels come back", bench.return_all),
    )
    for name, change in changes:
        show(name, bench.measure(change))
    plain = Bench(ambient=False)
    plain.commit(objects)
    show(
        "a pod is not ready, in a mesh that is not ambient",
        plain.measure(lambda: plain.commit([pod(1, services, ready=False)])),
    )


if __name__ == "__main__":
    main()

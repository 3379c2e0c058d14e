"""A sample of three injected services on an installation, and calls through it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from tests.cluster.box.box import Box
from tests.cluster.box.cluster import Cluster
from tests.cluster.manifests import echo, namespace, objects

SHOP = "shop"
HOST = "shop.example.com"
NAMES = ("front", "books", "reviews")


async def deploy_shop(
    cluster: Cluster, labels: Mapping[str, str] = {"istio-injection": "enabled"}, replicas: int = 1
) -> None:
    """Deploy three services into a namespace whose pods are injected."""
    await cluster.apply(namespace(SHOP, labels))
    for name in NAMES:
        await cluster.apply(echo(SHOP, name, replicas if name != "front" else 1, {"LINGER": "3"}))
    await cluster.wait_available(SHOP, *NAMES)


async def call(cluster: Cluster, source: str, url: str, *options: str, area: str = SHOP) -> dict[str, Any]:
    """Return what an `echo` answers to a request from a pod. Raise CommandFailed if the response is no success."""
    output = await cluster.run_in(area, source, "curl", "-sS", "--fail-with-body", "--max-time", "5", *options, url)
    answer: dict[str, Any] = json.loads(output)
    return answer


async def call_until(cluster: Cluster, source: str, url: str, *options: str, area: str = SHOP) -> dict[str, Any]:
    """Call until there is an answer."""
    answer: dict[str, Any] = await cluster.until(
        lambda: call(cluster, source, url, *options, area=area), 60, f"{source} calls {url}"
    )
    return answer


async def log_of(box: Box, name: str, container: str = "istio-proxy", area: str = SHOP) -> str:
    """Return the log of a container of the first pod of a workload."""
    pod = box.kubelet.find(area, name)[0].pod["metadata"]["name"]
    return await box.kubectl("logs", pod, f"-n{area}", f"-c{container}")


async def edit_mesh_config(box: Box, changes: Mapping[str, Any]) -> None:
    """Change fields of the mesh config, as an administrator edits the ConfigMap."""
    (current,) = await box.objects("configmap", "-nistio-system", "--field-selector=metadata.name=istio")
    mesh = yaml.safe_load(current["data"]["mesh"]) | changes
    patch = json.dumps({"data": {"mesh": yaml.safe_dump(mesh)}})
    await box.kubectl("patch", "configmap/istio", "-nistio-system", "--patch", patch)


def istio(group: str, kind: str, name: str, area: str, spec: object) -> dict[str, object]:
    """Return an object of an API group of Istio."""
    metadata = {"name": name, "namespace": area}
    return {"apiVersion": f"{group}.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


async def route_from_gateway(box: Box, area: str, tls: str = "") -> None:
    """Route requests to the ingress gateway in a namespace to the front of the shop. `tls` is the name of a Secret."""
    server: dict[str, Any] = {"hosts": ["*"], "port": {"number": 80, "name": "http", "protocol": "HTTP"}}
    if tls:
        port = {"number": 443, "name": "https", "protocol": "HTTPS"}
        server = {"hosts": [HOST], "port": port, "tls": {"mode": "SIMPLE", "credentialName": tls}}
    gateway = {"selector": {"istio": "ingressgateway"}, "servers": [server]}
    route = {"route": [{"destination": {"host": f"front.{SHOP}.svc.cluster.local"}}]}
    virtual_service = {"hosts": ["*"], "gateways": ["shop"], "http": [route]}
    await box.apply(
        objects(
            istio("networking", "Gateway", "shop", area, gateway),
            istio("networking", "VirtualService", "shop", area, virtual_service),
        )
    )


async def call_gateway(box: Box, area: str, scheme: str = "http", *options: str) -> None:
    """Call the ingress gateway at its load balancer's address until the front of the shop answers."""
    (service,) = await box.objects("service", f"-n{area}", "--field-selector=metadata.name=istio-ingressgateway")
    address = service["status"]["loadBalancer"]["ingress"][0]["ip"]
    hosts = [word for port in (80, 443) for word in ("--resolve", f"{HOST}:{port}:{address}")]
    words = ("curl", "-sS", "--fail", "--max-time", "5", *hosts, *options, f"{scheme}://{HOST}/home")
    answer = json.loads(await box.until(lambda: box.command(*words), 60, "the gateway answers"))
    assert answer["pod"].startswith("front-"), answer


async def is_current(box: Box, source: str, service: str, seconds: float = 30) -> None:
    """Wait until the proxy of a pod has a change that is made now: a header of the responses of a service."""
    mark = f"{box.age():.0f}"
    headers = {"response": {"set": {"x-mark": mark}}}
    route = {"route": [{"destination": {"host": service}, "headers": headers}]}
    await box.apply(
        objects(istio("networking", "VirtualService", f"mark-{service}", SHOP, {"hosts": [service], "http": [route]}))
    )

    async def is_marked() -> bool:
        return f"x-mark: {mark}" in await box.run_in(
            SHOP, source, "curl", "-sSi", "--max-time", "5", f"http://{service}/"
        )

    await box.until(is_marked, seconds, f"{source} has the newest configuration of {service}")


def memory_of(box: Box, area: str, name: str, container: str) -> str:
    """Return the most memory that a container of a pod used, and its limit, in MiB."""
    chosen = next(c for c in box.kubelet.find(area, name)[0].containers if c.name == container)
    return f"{name} {chosen.cgroup.peak() >> 20} of {chosen.memory_limit >> 20} MiB"

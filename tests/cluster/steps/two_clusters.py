"""One mesh over two clusters on two networks, as docs/multicluster.md installs it."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Mapping
from typing import Any

from testing.security.certificates import intermediate, root, write_plugged_in
from tests.cluster.box.box import Box
from tests.cluster.box.cluster import Cluster
from tests.cluster.box.second import second_box
from tests.cluster.load import load_on
from tests.cluster.manifests import objects
from tests.cluster.mesh import SHOP, call, call_until, deploy_shop, is_current, istio
from tests.cluster.steps.certificate_faults import write_cacerts
from tests.cluster.steps.installations import IMAGE, SYSTEM

EAST_WEST = "istio-eastwestgateway"
URL = "http://books/list"


async def run_two_clusters(box: Box) -> AsyncIterator[str]:
    """Install the mesh, and let parts of it fail."""
    async with second_box(box.folder / "peer") as peer:
        clusters = {"west": box, "east": peer}
        authority = root(7, now=datetime.datetime.now(datetime.UTC))
        for number, (name, cluster) in enumerate(clusters.items(), 1):
            await _install(cluster, name, number, authority)
        for source, target in ((box, peer), (peer, box)):
            name = next(name for name, cluster in clusters.items() if cluster is source)
            await target.apply(await source.command("pilotctl", "create-remote-secret", "--name", name))
        for cluster in clusters.values():
            await deploy_shop(cluster)
        yield await _share_load(clusters)
        yield await _strict(clusters)
        yield await _fail_over(box, peer)
        yield await _lose_control_plane(box, peer)


async def _install(cluster: Cluster, name: str, number: int, authority: Any) -> None:
    """Install the control plane and the east-west gateway of a cluster."""
    await cluster.kubectl("create", "namespace", SYSTEM)
    network = f"network-{number}"
    await cluster.kubectl("label", "namespace", SYSTEM, f"topology.istio.io/network={network}")
    folder = cluster.folder / "cacerts"
    folder.mkdir()
    write_plugged_in(folder, intermediate(authority, number, now=datetime.datetime.now(datetime.UTC)))
    await write_cacerts(cluster, folder)
    settings = {
        "values.pilot.image": IMAGE,
        "values.global.meshID": "mesh",
        "values.global.multiCluster.clusterName": name,
        "values.global.network": network,
        "components.ingressGateways[0].enabled": "false",
    }
    await cluster.command("pilotctl", "install", "-y", *(w for k, v in settings.items() for w in ("--set", f"{k}={v}")))
    await cluster.command(
        "helm",
        "install",
        EAST_WEST,
        "deploy/charts/gateway",
        f"-n{SYSTEM}",
        "--set",
        f"networkGateway={network}",
        "--wait",
    )
    port = {"number": 15443, "name": "tls", "protocol": "TLS"}
    server = {"port": port, "tls": {"mode": "AUTO_PASSTHROUGH"}, "hosts": ["*.local"]}
    spec = {"selector": {"istio": EAST_WEST.removeprefix("istio-")}, "servers": [server]}
    await cluster.apply(objects(istio("networking", "Gateway", "cross-network", SYSTEM, spec)))


async def _pods(cluster: Cluster, name: str) -> set[str]:
    pods = await cluster.objects("pods", f"-n{SHOP}", f"-lapp={name}")
    return {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}


async def _answering(cluster: Cluster, count: int = 20) -> set[str]:
    """Return the pods that answer to calls of the front of a cluster."""
    return {(await call(cluster, "front", URL))["pod"] for _ in range(count)}


async def _until_answering(cluster: Cluster, pods: set[str], what: str, seconds: float = 60) -> None:
    async def is_answered() -> bool:
        answering = await _answering(cluster)
        assert answering == pods, answering
        return True

    await cluster.until(is_answered, seconds, what)


async def _share_load(clusters: Mapping[str, Cluster]) -> str:
    everywhere = set[str]().union(*[await _pods(cluster, "books") for cluster in clusters.values()])
    for name, cluster in clusters.items():
        await call_until(cluster, "front", URL)
        await _until_answering(cluster, everywhere, f"both clusters answer {name}")
    return "calls from each cluster reach the pods of both, through east-west gateways"


async def _strict(clusters: Mapping[str, Cluster]) -> str:
    strict = istio("security", "PeerAuthentication", "default", SYSTEM, {"mtls": {"mode": "STRICT"}})
    for cluster in clusters.values():
        await cluster.apply(objects(strict))
    for cluster in clusters.values():
        for _ in range(10):
            await call(cluster, "front", URL)
    answer = await call(clusters["west"], "front", URL)
    assert f"/ns/{SHOP}/sa/front" in answer["headers"]["x-forwarded-client-cert"], answer
    return "mutual TLS in mode STRICT between the clusters"


async def _fail_over(box: Box, peer: Cluster) -> str:
    """Prefer the own region, stop its pods under load, and start them again."""
    detection = {"consecutive5xxErrors": 5, "interval": "5s", "baseEjectionTime": "10s"}
    balancer = {"localityLbSetting": {"failover": [{"from": "region-1", "to": "region-2"}]}}
    policy = {"outlierDetection": detection, "loadBalancer": balancer}
    rule = istio(
        "networking",
        "DestinationRule",
        "books",
        SHOP,
        {"host": f"books.{SHOP}.svc.cluster.local", "trafficPolicy": policy},
    )
    await box.apply(objects(rule))
    await _until_answering(box, await _pods(box, "books"), "the own region answers")
    async with load_on(box, "front", URL) as load:
        await box.kubectl("scale", "deployment/books", f"-n{SHOP}", "--replicas=0")
        await _until_answering(box, await _pods(peer, "books"), "the other region answers")
        await box.kubectl("scale", "deployment/books", f"-n{SHOP}", "--replicas=1")
        await box.wait_available(SHOP, "books")
        await _until_answering(box, await _pods(box, "books"), "the own region answers again")
    return f"calls stay in their region, fail over to the other one and come back: {load.requests} requests, 0 failures"


async def _lose_control_plane(box: Box, peer: Cluster) -> str:
    """Stop the control plane of the other cluster, under load that only its pods answer."""
    await box.kubectl("scale", "deployment/books", f"-n{SHOP}", "--replicas=0")
    await _until_answering(box, await _pods(peer, "books"), "the other region answers")
    async with load_on(box, "front", URL) as load:
        await peer.kubectl("delete", "hpa/istiod", f"-n{SYSTEM}")
        await peer.kubectl("scale", "deployment/istiod", f"-n{SYSTEM}", "--replicas=0")
        await peer.kubectl("wait", "--for=delete", "pod", "-lapp=istiod", f"-n{SYSTEM}", "--timeout=60s")
        await is_current(box, "front", "reviews")
        await call(peer, "front", URL)
        await peer.kubectl("scale", "deployment/istiod", f"-n{SYSTEM}", "--replicas=1")
        await peer.wait_available(SYSTEM, "istiod")
    return f"a cluster without control plane: {load.requests} requests to its pods, 0 failures, and edits in the other one arrive"

"""The move of docs/migrate.md from istiod to this control plane, and the way back, while services are called.

It needs istiod's `pilot-discovery` and `istioctl` in the folder KUBE_BINARIES. A stock Envoy lacks Istio's extensions, so
istiod is configured not to use them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from tests.cluster.box.box import Box
from tests.cluster.load import RATE, load_on
from tests.cluster.manifests import echo, namespace, objects
from tests.cluster.mesh import SHOP, call_gateway, call_until, deploy_shop, is_current, istio, route_from_gateway

TURNS = 5
OURS, REFERENCE = "pyistiod", "istiod"
INGRESS, GATEWAY, OUTSIDE = "istio-ingress", "istio-ingressgateway", "outside"
PROXY = ("--set", "values.global.proxy.image=registry.example/proxyv2:1", "--set", "profile=minimal")
WITHOUT_EXTENSIONS = (
    "values.telemetry.enabled=false",
    "values.pilot.env.PILOT_ENABLE_METADATA_EXCHANGE=false",
    "values.pilot.env.PILOT_ENABLE_ALPN_FILTER=false",
)
MESH_URL, GATEWAY_URL = "http://books/list", f"http://{GATEWAY}.{INGRESS}/home"


async def run_cutover(box: Box) -> AsyncIterator[str]:
    """Move all pods to the other control plane and back, several times."""
    settings = (f"revision={REFERENCE}", "values.pilot.image=registry.example/istiod:1", *WITHOUT_EXTENSIONS)
    await box.command("istioctl", "install", "-y", *_set(settings), *PROXY)
    await box.command("pilotctl", "tag", "set", "prod", "--revision", REFERENCE, "--overwrite")
    await deploy_shop(box, {"istio.io/rev": "prod"}, replicas=2)
    await box.apply(objects(istio("security", "PeerAuthentication", "default", SHOP, {"mtls": {"mode": "STRICT"}})))
    values = ("revision=prod", "autoscaling.enabled=false", "replicaCount=2")
    chart = ("deploy/charts/gateway", f"-n{INGRESS}", "--create-namespace", "--wait")
    await box.command("helm", "install", GATEWAY, *chart, *_set(values))
    await box.apply(namespace(OUTSIDE), echo(OUTSIDE, "client"))
    await box.wait_available(OUTSIDE, "client")
    await route_from_gateway(box, INGRESS)
    await call_gateway(box, INGRESS)
    await call_until(box, "front", MESH_URL)
    yield "istiod serves the sample: two replicas of each service with mutual TLS, and of a gateway"
    image = ("--set", "values.pilot.image=registry.example/pyistiod:1")
    await box.command("pilotctl", "install", "-y", "--revision", OURS, *image, *PROXY)
    requests = 0
    for turn in range(1, TURNS + 1):
        for revision in (OURS, REFERENCE):
            requests += await _move(box, revision)
        yield f"turn {turn}: to this control plane and back; {requests} requests at {2 * RATE} a second, 0 failures"


def _set(values: Iterable[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


async def _move(box: Box, revision: str) -> int:
    """Move all pods to a revision while they are called, and return the number of requests."""
    async with load_on(box, "client", GATEWAY_URL, OUTSIDE) as through_gateway:
        async with load_on(box, "front", MESH_URL) as between_sidecars:
            await box.command("pilotctl", "tag", "set", "prod", "--revision", revision, "--overwrite")
            for area, name in ((SHOP, "books"), (SHOP, "reviews"), (INGRESS, GATEWAY)):
                await _restart(box, area, name)
        await _restart(box, SHOP, "front")
        await is_current(box, "front", "books")
        await _verify_proxies(box, revision)
    return through_gateway.requests + between_sidecars.requests


async def _restart(box: Box, area: str, name: str) -> None:
    await box.kubectl("rollout", "restart", f"deployment/{name}", f"-n{area}")
    await box.wait_available(area, name)


async def _verify_proxies(box: Box, revision: str) -> None:
    """Check that all proxies were injected by a revision, and have refused no certificate."""
    for area in (SHOP, INGRESS):
        for pod in await box.objects("pods", f"-n{area}"):
            if "deletionTimestamp" in pod["metadata"]:
                continue
            name = pod["metadata"]["name"]
            assert pod["metadata"]["annotations"]["istio.io/rev"] == revision, pod["metadata"]
            stats = ("curl", "-sS", "http://127.0.0.1:15000/stats?filter=fail_verify&usedonly")
            refused = await box.run_in(area, name, *stats, container="istio-proxy")
            assert not any(int(line.rpartition(": ")[2]) for line in refused.splitlines()), (name, refused)

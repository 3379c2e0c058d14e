"""Features of the mesh, as users configure and see them, on an installation with kubectl."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator

import pytest

from tests.cluster.box.addresses import NODE
from tests.cluster.box.box import Box
from tests.cluster.box.cluster import CommandFailed
from tests.cluster.box.images import REPOSITORY
from tests.cluster.box.programs import VARIABLE
from tests.cluster.manifests import echo, namespace, objects
from tests.cluster.mesh import (
    HOST,
    SHOP,
    call,
    call_gateway,
    call_until,
    deploy_shop,
    edit_mesh_config,
    istio,
    log_of,
    route_from_gateway,
)
from tests.cluster.steps.installations import SYSTEM, install_with_kubectl
from tests.cluster.steps.prometheus import run_prometheus

PLAIN = "plain"
OUTSIDE, OUTSIDE_PORT = "outside.example.com", 8099


async def run_features(box: Box) -> AsyncIterator[str]:
    """Use the features one after the other."""
    await install_with_kubectl(box)
    await deploy_shop(box)
    await box.apply(namespace(PLAIN), echo(PLAIN, "visitor"))
    await box.wait_available(PLAIN, "visitor")
    answer = await call_until(box, "front", "http://books/list")
    assert f"spiffe://cluster.local/ns/{SHOP}/sa/front" in answer["headers"]["x-forwarded-client-cert"], answer
    yield "injected services call each other with mutual TLS"
    for feature in (
        _webhooks, _strict, _gateway, _access_log, _tracing, _outside, _http10, run_prometheus, _pilotctl, _istioctl,
    ):  # fmt: skip
        yield await feature(box)


async def _webhooks(box: Box) -> str:
    wrong = istio("networking", "VirtualService", "wrong", SHOP, {"hosts": ["books"], "http": [{"match": []}]})
    with pytest.raises(CommandFailed, match="admission webhook"):
        await box.apply(objects(wrong))
    return "the API server calls the injection and the validation webhook"


async def _strict(box: Box) -> str:
    await call_until(box, "visitor", "http://books.shop/plain", area=PLAIN)
    strict = istio("security", "PeerAuthentication", "default", SHOP, {"mtls": {"mode": "STRICT"}})
    await box.apply(objects(strict))

    async def refused() -> bool:
        try:
            await call(box, "visitor", "http://books.shop/plain", area=PLAIN)
        except CommandFailed as error:
            return "reset" in str(error) or "empty reply" in str(error).lower()
        return False

    await box.until(refused, 60, "plaintext is refused")
    await call(box, "front", "http://books/list")
    return "STRICT refuses plaintext from outside of the mesh, and mutual TLS continues"


async def _gateway(box: Box) -> str:
    certificate, key = box.kubernetes.authority.issue("shop", (HOST,))
    await box.kubectl("create", "secret", "tls", "shop-cert", f"-n{SYSTEM}", f"--cert={certificate}", f"--key={key}")
    await route_from_gateway(box, SYSTEM, "shop-cert")
    await call_gateway(box, SYSTEM, "https", "--cacert", str(box.kubernetes.authority.certificate))
    return "a gateway serves HTTPS at a load balancer's address, with the certificate of a Secret"


async def _access_log(box: Box) -> str:
    spec = {"accessLogging": [{"providers": [{"name": "envoy"}]}]}
    await box.apply(objects(istio("telemetry", "Telemetry", "logs", SYSTEM, spec)))

    async def is_logged() -> bool:
        await call(box, "front", "http://books/logged")
        return "/logged" in await log_of(box, "books")

    await box.until(is_logged, 30, "the request is in the access log")
    return "a Telemetry object turns on access logs, which kubectl logs shows"


async def _tracing(box: Box) -> str:
    await box.apply(echo(SHOP, "recorder", labels={"sidecar.istio.io/inject": "false"}))
    await box.wait_available(SHOP, "recorder")
    host = f"recorder.{SHOP}.svc.cluster.local"
    await edit_mesh_config(box, {"extensionProviders": [{"name": "dog", "datadog": {"service": host, "port": 80}}]})
    tracing = {"tracing": [{"providers": [{"name": "dog"}], "randomSamplingPercentage": 100}]}
    await box.apply(objects(istio("telemetry", "Telemetry", "traces", SHOP, tracing)))

    async def is_traced() -> bool:
        await call(box, "front", "http://books/traced")
        return "/v0.4/traces" in await log_of(box, "recorder", "echo")

    await box.until(is_traced, 40, "the recorder receives traces")
    return "a provider of the mesh config and a Telemetry object send traces to a Datadog agent"


async def _outside(box: Box) -> str:
    server = str(REPOSITORY / "tests/cluster/box/echo.py")
    box.dns.outside[OUTSIDE] = NODE
    async with box.running(sys.executable, server, environ={"PORT": str(OUTSIDE_PORT)}):
        return await _reach_outside(box)


async def _reach_outside(box: Box) -> str:
    url = f"http://{OUTSIDE}:{OUTSIDE_PORT}/"
    await call_until(box, "front", url)
    await edit_mesh_config(box, {"outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}})

    async def is_blocked() -> bool:
        try:
            await call(box, "front", url)
        except CommandFailed:
            return True
        return False

    await box.until(is_blocked, 60, "REGISTRY_ONLY blocks the host")
    port = {"number": OUTSIDE_PORT, "name": "http", "protocol": "HTTP"}
    entry = {"hosts": [OUTSIDE], "ports": [port], "resolution": "DNS", "location": "MESH_EXTERNAL"}
    await box.apply(objects(istio("networking", "ServiceEntry", "outside", SHOP, entry)))
    await call_until(box, "front", url)
    return "REGISTRY_ONLY in the mesh config blocks a host outside, and a ServiceEntry opens it"


async def _http10(box: Box) -> str:
    with pytest.raises(CommandFailed):
        await call(box, "front", "http://books/", "--http1.0")
    await box.kubectl("set", "env", "deployment/istiod", f"-n{SYSTEM}", "PILOT_HTTP10=true")
    await box.wait_available(SYSTEM, "istiod")
    await call_until(box, "front", "http://books/", "--http1.0")
    return "HTTP/1.0 is accepted once the environment of istiod says so"


async def _pilotctl(box: Box) -> str:
    async def lists_front() -> bool:
        return "front-" in await box.command("pilotctl", "proxy-status")

    await box.until(lists_front, 60, "pilotctl lists the proxies")
    front = box.kubelet.find(SHOP, "front")[0].pod["metadata"]["name"]
    clusters = await box.command("pilotctl", "proxy-config", "clusters", f"{front}.{SHOP}")
    assert "books.shop.svc.cluster.local" in clusters, clusters
    return "pilotctl over port-forward: proxy-status, proxy-config"


async def _istioctl(box: Box) -> str:
    if not shutil.which("istioctl", path=f"{os.environ['PATH']}:{os.environ.get(VARIABLE, '')}"):
        return "istioctl is not here: not tried"
    status = await box.command("istioctl", "proxy-status")
    assert "front-" in status, status
    front = box.kubelet.find(SHOP, "front")[0].pod["metadata"]["name"]
    for kind in ("clusters", "endpoints", "listeners", "routes", "secret"):
        await box.command("istioctl", "proxy-config", kind, f"{front}.{SHOP}")
    await box.command("istioctl", "version")
    await box.command("istioctl", "analyze", f"-n{SHOP}")
    return "istioctl over port-forward: version, proxy-status, proxy-config, analyze"

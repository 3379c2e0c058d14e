"""Features of the mesh, as users configure and see them, on an installation with kubectl."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.cluster.box.addresses import NODE
from tests.cluster.box.box import Box, CommandFailed
from tests.cluster.box.images import REPOSITORY
from tests.cluster.box.programs import VARIABLE
from tests.cluster.manifests import echo, namespace, objects
from tests.cluster.mesh import SHOP, call, call_until, deploy_shop, edit_mesh_config, log_of
from tests.cluster.steps.installations import SYSTEM, install_with_kubectl

PLAIN = "plain"
OUTSIDE, OUTSIDE_PORT = "outside.example.com", 8099


def istio(group: str, kind: str, name: str, area: str, spec: object) -> dict[str, object]:
    """Return an object of an API group of Istio."""
    metadata = {"name": name, "namespace": area}
    return {"apiVersion": f"{group}.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


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
        _webhooks, _strict, _gateway, _access_log, _tracing, _outside, _http10, _prometheus, _pilotctl, _istioctl,
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

    await box.until(refused, 20, "plaintext is refused")
    await call(box, "front", "http://books/list")
    return "STRICT refuses plaintext from outside of the mesh, and mutual TLS continues"


async def _gateway(box: Box) -> str:
    certificate, key = box.kubernetes.authority.issue("shop", ("shop.example.com",))
    await box.kubectl("create", "secret", "tls", "shop-cert", f"-n{SYSTEM}", f"--cert={certificate}", f"--key={key}")
    tls = {"mode": "SIMPLE", "credentialName": "shop-cert"}
    server = {"port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "hosts": ["shop.example.com"], "tls": tls}
    route = {
        "match": [{"uri": {"prefix": "/"}}],
        "route": [{"destination": {"host": f"front.{SHOP}.svc.cluster.local"}}],
    }
    await box.apply(
        objects(
            istio(
                "networking", "Gateway", "shop", SYSTEM, {"selector": {"istio": "ingressgateway"}, "servers": [server]}
            ),
            istio(
                "networking", "VirtualService", "shop", SYSTEM, {"hosts": ["*"], "gateways": ["shop"], "http": [route]}
            ),
        )
    )
    (service,) = await box.objects("service", f"-n{SYSTEM}", "--field-selector=metadata.name=istio-ingressgateway")
    address = service["status"]["loadBalancer"]["ingress"][0]["ip"]
    words = ("curl", "-sS", "--fail", "--cacert", str(box.kubernetes.authority.certificate))
    target = ("--resolve", f"shop.example.com:443:{address}", "https://shop.example.com/home")
    answer = json.loads(await box.until(lambda: box.command(*words, *target), 20, "the gateway answers"))
    assert answer["pod"].startswith("front-"), answer
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
    environ = {**os.environ, "PORT": str(OUTSIDE_PORT), "HOSTNAME": "outside"}
    await box.start_outside(sys.executable, str(REPOSITORY / "tests/cluster/box/echo.py"), environ=environ)
    box.dns.outside[OUTSIDE] = NODE
    url = f"http://{OUTSIDE}:{OUTSIDE_PORT}/"
    await call_until(box, "front", url)
    await edit_mesh_config(box, {"outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}})

    async def is_blocked() -> bool:
        try:
            await call(box, "front", url)
        except CommandFailed:
            return True
        return False

    await box.until(is_blocked, 20, "REGISTRY_ONLY blocks the host")
    port = {"number": OUTSIDE_PORT, "name": "http", "protocol": "HTTP"}
    entry = {"hosts": [OUTSIDE], "ports": [port], "resolution": "DNS", "location": "MESH_EXTERNAL"}
    await box.apply(objects(istio("networking", "ServiceEntry", "outside", SHOP, entry)))
    await call_until(box, "front", url)
    return "REGISTRY_ONLY in the mesh config blocks a host outside, and a ServiceEntry opens it"


async def _http10(box: Box) -> str:
    config = json.dumps({"proxyMetadata": {"ISTIO_META_HTTP10": "1"}})
    await box.apply(echo(SHOP, "old", annotations={"proxy.istio.io/config": config}))
    await box.wait_available(SHOP, "old")
    refused = await box.run_in(SHOP, "front", "curl", "-sS", "--http1.0", "-w", "%{http_code}", "http://books/")
    assert refused.endswith("426"), refused
    await call_until(box, "old", "http://books/", "--http1.0")
    return "HTTP/1.0 is accepted from a proxy whose annotation says so, and from no other"


async def _prometheus(box: Box) -> str:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session:
        seen = dict[str, str]()
        for pod in await box.objects("pods", "-A"):
            notes = pod["metadata"].get("annotations") or {}
            if notes.get("prometheus.io/scrape") == "true":
                url = f"http://{pod['status']['podIP']}:{notes['prometheus.io/port']}{notes.get('prometheus.io/path', '/metrics')}"
                async with session.get(url) as response:
                    assert response.status == 200, url
                    seen[pod["metadata"]["name"]] = await response.text()
    for prefix, metric in (
        ("istiod", "pilot_xds"),
        ("front", "istio_requests_total"),
        ("istio-ingress", "istio_requests_total"),
    ):
        assert metric in next(text for name, text in seen.items() if name.startswith(prefix)), (prefix, metric)
    return f"{len(seen)} pods are scraped at the addresses of their annotations"


async def _pilotctl(box: Box) -> str:
    status = await box.command("pilotctl", "proxy-status")
    assert "front-" in status, status
    version = await box.command("pilotctl", "version")
    front = box.kubelet.find(SHOP, "front")[0].pod["metadata"]["name"]
    clusters = await box.command("pilotctl", "proxy-config", "clusters", f"{front}.{SHOP}")
    assert "books.shop.svc.cluster.local" in clusters, clusters
    return f"pilotctl over port-forward: {version.splitlines()[0]}, proxy-status, proxy-config"


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

"""Values of the charts of istiod and of a gateway, seen in what the installation does."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
import yaml

from tests.cluster.box.addresses import NODE
from tests.cluster.box.box import Box
from tests.cluster.box.cluster import CommandFailed
from tests.cluster.box.images import REPOSITORY
from tests.cluster.manifests import echo, namespace, objects
from tests.cluster.mesh import SHOP, call, call_until, deploy_shop, istio, log_of, memory_of
from tests.cluster.steps.installations import IMAGE, SYSTEM

GATEWAY, RAW = "edge", "raw"
OUTSIDE = "outside.example.com"
CAPTURED_PORT, EXCLUDED_PORT = 8098, 8099
STATUS_PORT = 15030
ISTIOD_VALUES: dict[str, Any] = {
    "image": IMAGE,
    "autoscaleEnabled": False,
    "replicaCount": 2,
    "resources": {"requests": {"cpu": "100m"}},
    "memoryLimit": "3Gi",
    "plaintextXds": False,
    "env": {"PILOT_HTTP10": "true"},
    "traceSampling": 100,
    "podAnnotations": {"example.com/pod": "annotated"},
    "podLabels": {"example.com/pod": "labelled"},
    "serviceAnnotations": {"example.com/service": "annotated"},
    "revisionTags": ["canary"],
    "meshConfig": {
        "accessLogFile": "/dev/stdout",
        "accessLogFormat": "seen %REQ(:PATH)%\n",
        "outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"},
        "trustDomain": "mesh.example",
        "extensionProviders": [{"name": "dog", "datadog": {"service": f"recorder.{SHOP}.svc.cluster.local", "port": 80}}],
        "defaultProviders": {"tracing": ["dog"]},
        "defaultConfig": {"proxyMetadata": {"EXAMPLE": "set"}, "concurrency": 1, "statusPort": STATUS_PORT},
    },
    "sidecarInjectorWebhook": {
        "enableNamespacesByDefault": True,
        "injectedAnnotations": {"example.com/injected": "yes"},
        "neverInjectSelector": [{"matchLabels": {"app": RAW}}],
        "templates": {"mark": "metadata: {labels: {example.com/mark: template}}"},
        "defaultTemplates": ["sidecar", "mark"],
    },
    "global": {
        "logAsJson": True,
        "logging": {"level": "default:debug"},
        "meshID": "mesh1",
        "network": "network1",
        "multiCluster": {"clusterName": "cluster1"},
        "proxy": {
            "logLevel": "info",
            "componentLogLevel": "router:error",
            "excludeOutboundPorts": str(EXCLUDED_PORT),
            "statusPort": STATUS_PORT,
            "readinessPeriodSeconds": 2,
            "privileged": True,
            "outlierLogPath": "/dev/stdout",
            "resources": {"limits": {"memory": "512Mi"}},
        },
    },
}  # fmt: skip
GATEWAY_VALUES: dict[str, Any] = {
    "autoscaling": {"enabled": False},
    "replicaCount": 2,
    "podDisruptionBudget": {"minAvailable": 1},
    "service": {"type": "ClusterIP", "ports": [{"name": "web", "port": 8000, "targetPort": 8080, "protocol": "TCP"}]},
    "labels": {"team": "edge"},
    "env": {"EXAMPLE": "set"},
    "resources": {"limits": {"memory": "384Mi"}},
    "serviceAccount": {"name": "edge-account"},
    "terminationGracePeriodSeconds": 7,
}


async def run_chart_values(box: Box) -> AsyncIterator[str]:
    """Install with Helm and with values, use the mesh, and upgrade with other values."""
    await box.command("helm", "install", "istio-base", "deploy/charts/base", f"-n{SYSTEM}", "--create-namespace")
    await _helm(box, "install", "istiod", ISTIOD_VALUES, SYSTEM)
    await deploy_shop(box, {})
    yield await _see(box, "istiod", _istiod, _control_plane_objects, _closed_plaintext)
    yield await _see(box, "injection", _injected, _never_injected, _tagged_namespace)
    yield await _see(box, "proxies", _identity, _node, _http10, _access_log, _log_levels, _tracing, _capture)
    await _helm(box, "install", GATEWAY, GATEWAY_VALUES, "edge")
    yield await _see(box, "gateway", _gateway)
    yield await _upgrade(box)


async def _helm(box: Box, verb: str, name: str, values: dict[str, Any], area: str) -> None:
    file = box.folder / f"{name}-values.yaml"
    file.write_text(yaml.safe_dump(values))
    chart = "deploy/charts/istiod" if name == "istiod" else "deploy/charts/gateway"
    await box.command("helm", verb, name, chart, f"-n{area}", "--create-namespace", "--wait", "-f", str(file))


async def _see(box: Box, subject: str, *checks: Callable[[Box], Awaitable[list[str]]]) -> str:
    """Return the values whose effect was seen."""
    seen = [value for check in checks for value in await check(box)]
    return f"{len(seen)} values of {subject} have an effect: {', '.join(seen)}"


async def _pod(box: Box, area: str, name: str) -> Any:
    return (await box.objects("pods", f"-n{area}", f"-lapp={name}"))[0]


async def _istiod(box: Box) -> list[str]:
    pods = await box.objects("pods", f"-n{SYSTEM}", "-lapp=istiod")
    assert len([pod for pod in pods if pod["status"]["phase"] == "Running"]) == 2
    metadata, (container, *_) = pods[0]["metadata"], pods[0]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "100m"
    assert metadata["annotations"]["example.com/pod"] == "annotated"
    assert metadata["labels"]["example.com/pod"] == "labelled"
    assert memory_of(box, SYSTEM, "istiod", "discovery").endswith("of 3072 MiB")
    lines = [json.loads(line) for line in (await log_of(box, "istiod", "discovery", SYSTEM)).splitlines()]
    assert "debug" in {line["level"] for line in lines}
    return [
        "autoscaleEnabled", "replicaCount", "image", "podAnnotations", "podLabels", "memoryLimit", "resources",
        "global.logAsJson", "global.logging.level",
    ]  # fmt: skip


async def _control_plane_objects(box: Box) -> list[str]:
    (budget,) = await box.objects("pdb", f"-n{SYSTEM}", "--field-selector=metadata.name=istiod")
    assert budget["status"]["desiredHealthy"] == 1
    (service,) = await box.objects("service", f"-n{SYSTEM}", "--field-selector=metadata.name=istiod")
    assert service["metadata"]["annotations"]["example.com/service"] == "annotated"
    return ["pdb.minAvailable", "serviceAnnotations"]


async def _closed_plaintext(box: Box) -> list[str]:
    address = (await _pod(box, SYSTEM, "istiod"))["status"]["podIP"]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session:
        async with session.get(f"http://{address}:15014/version"):
            pass
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"http://{address}:15010/")
    return ["plaintextXds"]


async def _injected(box: Box) -> list[str]:
    """Check a pod in a namespace without a label."""
    pod = await _pod(box, SHOP, "books")
    metadata = pod["metadata"]
    assert metadata["annotations"]["example.com/injected"] == "yes"
    assert metadata["labels"]["example.com/mark"] == "template"
    containers = [*pod["spec"]["containers"], *pod["spec"]["initContainers"]]
    proxy = next(c for c in containers if c["name"] == "istio-proxy")
    assert proxy["securityContext"]["privileged"]
    assert proxy["readinessProbe"]["periodSeconds"] == 2
    assert metadata["annotations"]["prometheus.io/port"] == str(STATUS_PORT)
    url = f"http://{pod['status']['podIP']}:{STATUS_PORT}/stats/prometheus"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert "envoy_cluster" in await response.text()
    assert memory_of(box, SHOP, "books", "istio-proxy").endswith("of 512 MiB")
    return [
        "enableNamespacesByDefault", "injectedAnnotations", "templates", "defaultTemplates", "global.proxy.privileged",
        "global.proxy.readinessPeriodSeconds", "global.proxy.statusPort", "global.proxy.resources",
    ]  # fmt: skip


async def _never_injected(box: Box) -> list[str]:
    await box.apply(echo(SHOP, RAW))
    await box.wait_available(SHOP, RAW)
    assert len((await _pod(box, SHOP, RAW))["spec"]["containers"]) == 1
    return ["neverInjectSelector"]


async def _tagged_namespace(box: Box) -> list[str]:
    await box.apply(namespace("tagged", {"istio.io/rev": "canary"}), echo("tagged", "callee"))
    await box.wait_available("tagged", "callee")
    await call_until(box, "front", "http://callee.tagged/")
    assert "istio-proxy" in json.dumps((await _pod(box, "tagged", "callee"))["spec"])
    return ["revisionTags"]


async def _identity(box: Box) -> list[str]:
    answer = await call_until(box, "front", "http://books/list")
    assert f"spiffe://mesh.example/ns/{SHOP}/sa/front" in answer["headers"]["x-forwarded-client-cert"], answer
    return ["meshConfig.trustDomain"]


async def _node(box: Box) -> list[str]:
    dump = json.loads(await _admin(box, "config_dump?resource=&mask=bootstrap"))
    bootstrap = next(c for c in dump["configs"] if "Bootstrap" in c["@type"])["bootstrap"]
    metadata = bootstrap["node"]["metadata"]
    assert [metadata[name] for name in ("MESH_ID", "NETWORK", "CLUSTER_ID")] == ["mesh1", "network1", "cluster1"]
    assert metadata["PROXY_CONFIG"]["concurrency"] == 1
    assert bootstrap["cluster_manager"]["outlier_detection"]["event_log_path"] == "/dev/stdout"
    environment = await box.run_in(SHOP, "front", "env", container="istio-proxy")
    assert "EXAMPLE=set" in environment
    return [
        "global.meshID", "global.network", "global.multiCluster.clusterName", "global.proxy.outlierLogPath",
        "meshConfig.defaultConfig",
    ]  # fmt: skip


async def _admin(box: Box, path: str, *options: str) -> str:
    """Return an answer of the admin interface of the caller's Envoy."""
    url = f"http://127.0.0.1:15000/{path}"
    return await box.run_in(SHOP, "front", "curl", "-sS", *options, url, container="istio-proxy")


async def _http10(box: Box) -> list[str]:
    await call(box, "front", "http://books/", "--http1.0")
    return ["env"]


async def _access_log(box: Box) -> list[str]:
    await call(box, "front", "http://books/logged")

    async def is_logged() -> bool:
        return "seen /logged\n" in await log_of(box, "front")

    await box.until(is_logged, 30, "the request is in the access log")
    return ["meshConfig.accessLogFile", "meshConfig.accessLogFormat"]


async def _log_levels(box: Box) -> list[str]:
    levels = await _admin(box, "logging", "-XPOST")
    assert "upstream: info" in levels, levels
    assert "router: error" in levels, levels
    return ["global.proxy.logLevel", "global.proxy.componentLogLevel"]


async def _tracing(box: Box) -> list[str]:
    await box.apply(echo(SHOP, "recorder", labels={"sidecar.istio.io/inject": "false"}))
    await box.wait_available(SHOP, "recorder")

    async def is_traced() -> bool:
        await call(box, "front", "http://books/traced")
        return "/v0.4/traces" in await log_of(box, "recorder", "echo")

    await box.until(is_traced, 60, "the recorder receives traces")
    return ["traceSampling", "meshConfig.extensionProviders", "meshConfig.defaultProviders"]


async def _capture(box: Box) -> list[str]:
    """Check that REGISTRY_ONLY blocks a captured port of a host outside, and not an excluded one."""
    server = str(REPOSITORY / "tests/cluster/box/echo.py")
    box.dns.outside[OUTSIDE] = NODE
    async with (
        box.running(sys.executable, server, environ={"PORT": str(CAPTURED_PORT)}),
        box.running(sys.executable, server, environ={"PORT": str(EXCLUDED_PORT)}),
    ):
        await call_until(box, "front", f"http://{OUTSIDE}:{EXCLUDED_PORT}/")
        with pytest.raises(CommandFailed):
            await call(box, "front", f"http://{OUTSIDE}:{CAPTURED_PORT}/")
    return ["meshConfig.outboundTrafficPolicy", "global.proxy.excludeOutboundPorts"]


async def _gateway(box: Box) -> list[str]:
    pods = await box.objects("pods", "-nedge", "-lteam=edge")
    assert len(pods) == 2
    spec = pods[0]["spec"]
    assert spec["serviceAccountName"] == "edge-account"
    assert spec["terminationGracePeriodSeconds"] == 7
    assert memory_of(box, "edge", GATEWAY, "istio-proxy").endswith("of 384 MiB")
    assert "EXAMPLE=set" in await box.run_in("edge", GATEWAY, "env", container="istio-proxy")
    (budget,) = await box.objects("pdb", "-nedge")
    assert budget["status"]["desiredHealthy"] == 1
    server = {"hosts": ["*"], "port": {"number": 8000, "name": "http", "protocol": "HTTP"}}
    route = {"route": [{"destination": {"host": f"front.{SHOP}.svc.cluster.local"}}]}
    await box.apply(
        objects(
            istio("networking", "Gateway", "edge", "edge", {"selector": {"team": "edge"}, "servers": [server]}),
            istio("networking", "VirtualService", "edge", "edge", {"hosts": ["*"], "gateways": ["edge"], "http": [route]}),
        )
    )  # fmt: skip
    answer = await call_until(box, RAW, f"http://{GATEWAY}.edge:8000/home")
    assert answer["pod"].startswith("front-"), answer
    return [
        "replicaCount", "podDisruptionBudget", "service.type", "service.ports", "labels", "env", "resources",
        "serviceAccount.name", "terminationGracePeriodSeconds",
    ]  # fmt: skip


async def _upgrade(box: Box) -> str:
    changed = {**ISTIOD_VALUES, "replicaCount": 1, "plaintextXds": True}
    changed["meshConfig"] = {**ISTIOD_VALUES["meshConfig"], "outboundTrafficPolicy": {"mode": "ALLOW_ANY"}}
    await _helm(box, "upgrade", "istiod", changed, SYSTEM)
    server = str(REPOSITORY / "tests/cluster/box/echo.py")
    async with box.running(sys.executable, server, environ={"PORT": str(CAPTURED_PORT)}):
        await call_until(box, "front", f"http://{OUTSIDE}:{CAPTURED_PORT}/")
    return "helm upgrade with other values: REGISTRY_ONLY becomes ALLOW_ANY without a restart of the applications"

"""The ways of installation of docs/install.md, each on a new cluster.

Each is used by requests through the gateway and between injected services, and removed. Nothing may be left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import yaml

from tests.cluster.box.addresses import NODE
from tests.cluster.box.box import Box
from tests.cluster.manifests import namespace
from tests.cluster.mesh import SHOP, call_gateway, call_until, deploy_shop, log_of, memory_of, route_from_gateway

SYSTEM, GATEWAY = "istio-system", "istio-ingressgateway"
IMAGE = "registry.example/pyistiod:1"
ACCESS_LOG = "meshConfig.accessLogFile=/dev/stdout"
TRANSIENT = ("events", "pods", "leases", "endpoints", "endpointslices", "controllerrevisions", "podmetrics", "nodes")
"""Kinds whose objects Kubernetes itself adds and removes."""


async def install_with_kubectl(box: Box) -> None:
    """Apply the manifests."""
    await box.kubectl("apply", "--server-side", "-f", "deploy/manifests/")
    await box.wait_available(SYSTEM, "istiod", GATEWAY)


async def run_kubectl(box: Box) -> AsyncIterator[str]:
    """Install with kubectl."""
    before = await names_of_objects(box)
    await install_with_kubectl(box)
    yield await _use(box, SYSTEM)
    await box.kubectl("delete", "-f", "deploy/manifests/", "--ignore-not-found")
    yield await _remove(box, before, "kubectl", "delete", "configmap", "-A", "-l", "istio.io/config=true")


async def run_pilotctl(box: Box) -> AsyncIterator[str]:
    """Install with pilotctl."""
    before = await names_of_objects(box)
    await box.command("pilotctl", "install", "-y", "--set", f"values.pilot.image={IMAGE}", "--set", ACCESS_LOG)
    yield await _use(box, SYSTEM)
    yield await _is_logged(box)
    await box.command("pilotctl", "verify-install", "--set", f"values.pilot.image={IMAGE}", "--set", ACCESS_LOG)
    yield "pilotctl verify-install finds no difference"
    yield await _remove(box, before, "pilotctl", "uninstall", "--purge", "-y")


async def run_helm(box: Box) -> AsyncIterator[str]:
    """Install with Helm."""
    before = await names_of_objects(box)
    await box.command("helm", "install", "istio-base", "deploy/charts/base", f"-n{SYSTEM}", "--create-namespace")
    values = ("--set", f"image={IMAGE}", "--set", ACCESS_LOG, "--wait")
    await box.command("helm", "install", "istiod", "deploy/charts/istiod", f"-n{SYSTEM}", *values)
    await box.command(
        "helm", "install", GATEWAY, "deploy/charts/gateway", "-nistio-ingress", "--create-namespace", "--wait"
    )
    yield await _use(box, "istio-ingress")
    yield await _is_logged(box)
    await box.command("helm", "uninstall", GATEWAY, "-nistio-ingress")
    await box.command("helm", "uninstall", "istiod", f"-n{SYSTEM}")
    await box.command("helm", "uninstall", "istio-base", f"-n{SYSTEM}")
    yield await _remove(box, before, "pilotctl", "uninstall", "--purge", "-y")


async def run_operator(box: Box) -> AsyncIterator[str]:
    """Install with the operator: the gateway is in another namespace, which the operator watches."""
    before = await names_of_objects(box)
    gateway = {"name": GATEWAY, "namespace": "team-a", "enabled": True}
    spec = {
        "profile": "default",
        "meshConfig": {"accessLogFile": "/dev/stdout"},
        "values": {"pilot": {"image": IMAGE}},
        "components": {"ingressGateways": [gateway]},
    }
    plain = {
        "apiVersion": "install.istio.io/v1alpha1",
        "kind": "IstioOperator",
        "metadata": {"name": "mesh", "namespace": SYSTEM},
        "spec": spec,
    }
    file = box.folder / "operator.yaml"
    file.write_text(yaml.safe_dump(plain))
    await box.apply(namespace("team-a"))
    watched = ("--watchedNamespaces", f"{SYSTEM},team-a")
    await box.command("pilotctl", "operator", "init", "--image", IMAGE, *watched, "-f", str(file))

    async def is_healthy() -> bool:
        (resource,) = await box.objects("istiooperators", f"-n{SYSTEM}")
        assert resource.get("status", {}).get("status") == "HEALTHY", resource.get("status")
        return True

    await box.until(is_healthy, 90, "the IstioOperator is healthy")
    yield "the operator installs what an IstioOperator describes"
    yield await _use(box, "team-a")
    yield await _is_logged(box)
    await box.kubectl("delete", "istiooperator/mesh", f"-n{SYSTEM}", "--timeout=90s")
    await box.kubectl("delete", "namespace/team-a")
    await box.command("pilotctl", "operator", "remove", "-y", "--purge")
    await box.kubectl("delete", "crd/istiooperators.install.istio.io")
    yield await _remove(box, before, "pilotctl", "uninstall", "--purge", "-y")


async def run_external(box: Box) -> AsyncIterator[str]:
    """Run the control plane outside of the cluster."""
    before = await names_of_objects(box)
    await box.command("helm", "install", "istio-base", "deploy/charts/base", f"-n{SYSTEM}", "--create-namespace")
    values = (
        "profile=remote",
        "configMap=true",
        "global.omitSidecarInjectorConfigMap=false",
        "global.configCluster=true",
    )
    options = [
        word for value in (*values, f"global.remotePilotAddress={NODE}", ACCESS_LOG) for word in ("--set", value)
    ]
    await box.command("helm", "install", "istiod", "deploy/charts/istiod", f"-n{SYSTEM}", *options)
    kubeconfig = ("--kubeconfig", str(box.kubernetes.kubeconfig))
    async with box.running("pilot-discovery", "discovery", *kubeconfig, environ={"EXTERNAL_ISTIOD": "true"}):
        await box.command(
            "helm", "install", GATEWAY, "deploy/charts/gateway", "-nistio-ingress", "--create-namespace", "--wait"
        )
        yield await _use(box, "istio-ingress", is_inside=False)
        yield await _is_logged(box)
        await box.command("helm", "uninstall", GATEWAY, "-nistio-ingress")
    await box.command("helm", "uninstall", "istiod", f"-n{SYSTEM}")
    await box.command("helm", "uninstall", "istio-base", f"-n{SYSTEM}")
    yield await _remove(box, before, "pilotctl", "uninstall", "--purge", "-y")


async def _use(box: Box, area: str, is_inside: bool = True) -> str:
    """Send requests through the gateway and between services. `is_inside` is whether istiod runs in the cluster."""
    await deploy_shop(box)
    answer = await call_until(box, "front", "http://books/list")
    assert f"spiffe://cluster.local/ns/{SHOP}/sa/front" in answer["headers"]["x-forwarded-client-cert"], answer
    await route_from_gateway(box, area)
    await call_gateway(box, area)
    parts = [(area, GATEWAY, "istio-proxy"), (SHOP, "front", "istio-proxy")]
    memory = ", ".join(memory_of(box, *part) for part in [(SYSTEM, "istiod", "discovery")] * is_inside + parts)
    return f"a request reaches a service through the gateway, and another with mutual TLS, {box.age():.0f} s after the cluster; memory: {memory}"


async def _is_logged(box: Box) -> str:
    async def is_logged() -> bool:
        await call_until(box, "front", "http://books/logged")
        return "/logged" in await log_of(box, "books")

    await box.until(is_logged, 60, "the request is in the access log")
    return "the mesh config of the installation turns on access logs"


async def _remove(box: Box, before: set[str], *words: str) -> str:
    """Remove an installation and compare all objects of the cluster with those before it."""
    await box.kubectl("delete", "namespace", SHOP)
    await box.command(*words)
    for area in (SYSTEM, "istio-ingress", "istio-operator"):
        await box.kubectl("delete", "namespace", area, "--ignore-not-found")

    async def is_clean() -> bool:
        left = await names_of_objects(box) - before
        assert not left, f"left after `{' '.join(words)}`: {', '.join(sorted(left))}"
        return True

    await box.until(is_clean, 40, "nothing is left")
    return f"nothing is left after `{' '.join(words)}`"


async def names_of_objects(box: Box) -> set[str]:
    """Return the names of all objects of the cluster that do not come and go by themselves."""
    await box.kubectl("wait", "--for=create", "serviceaccount/default", "-nkube-node-lease", "--timeout=30s")
    kinds = (await box.kubectl("api-resources", "--verbs=list", "-oname")).split()
    listed = ",".join(kind for kind in kinds if kind.partition(".")[0] not in TRANSIENT)
    fields = '{range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\\n"}{end}'
    return set((await box.kubectl("get", listed, "-A", f"-ojsonpath={fields}")).split())

"""The ways of installation of docs/install.md. Each ends with requests between injected services."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.cluster.box.box import Box
from tests.cluster.mesh import call_until, deploy_shop

SYSTEM = "istio-system"


async def install_with_kubectl(box: Box) -> None:
    """Apply the manifests."""
    await box.kubectl("apply", "--server-side", "-f", "deploy/manifests/")
    await box.wait_available(SYSTEM, "istiod", "istio-ingressgateway")


async def run_kubectl(box: Box) -> AsyncIterator[str]:
    """Install with kubectl, and call a service from another one."""
    await install_with_kubectl(box)
    await deploy_shop(box)
    answer = await call_until(box, "front", "http://books/list")
    assert "x-forwarded-client-cert" in answer["headers"], answer
    yield "injected services call each other with mutual TLS"

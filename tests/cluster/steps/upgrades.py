"""Upgrades of the control plane while services are called."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.cluster.box.box import Box
from tests.cluster.load import RATE, load_on
from tests.cluster.mesh import SHOP, call_gateway, call_until, deploy_shop, is_current, route_from_gateway
from tests.cluster.steps.installations import SYSTEM, install_with_kubectl

URL = "http://books/list"


def image(version: int) -> tuple[str, str]:
    """Return the options of pilotctl that select a version."""
    return "--set", f"values.pilot.image=registry.example/pyistiod:{version}"


async def run_revisions(box: Box) -> AsyncIterator[str]:
    """Move from a revision to another one: the tag, then the pods, one after the other."""
    await box.command("pilotctl", "install", "-y", "--revision", "r1", *image(1))
    await box.command("pilotctl", "tag", "set", "prod", "--revision", "r1", "--overwrite")
    await deploy_shop(box, {"istio.io/rev": "prod"}, replicas=2)
    await call_until(box, "front", URL)
    async with load_on(box, "front", URL) as load:
        await box.command("pilotctl", "install", "-y", "--revision", "r2", *image(2))
        await box.command("pilotctl", "tag", "set", "prod", "--revision", "r2", "--overwrite")
        for name in ("books", "reviews"):
            await _restart(box, name)
    moved = load.requests
    await _restart(box, "front")
    async with load_on(box, "front", URL) as load:
        await box.command("pilotctl", "uninstall", "--revision", "r1", "-y")
        await is_current(box, "front", "books")
    for pod in await box.objects("pods", f"-n{SHOP}"):
        if "deletionTimestamp" in pod["metadata"]:
            continue
        assert pod["metadata"]["annotations"]["istio.io/rev"] == "r2", pod["metadata"]
    yield f"from revision r1 to r2: {moved + load.requests} requests at {RATE} a second, 0 failures"


async def run_in_place(box: Box) -> AsyncIterator[str]:
    """Replace three replicas by another version, and go back."""
    three = ("--set", "values.pilot.autoscaleMin=3")
    await box.command("pilotctl", "install", "-y", *image(1), *three)
    await deploy_shop(box)
    await call_until(box, "front", URL)
    (budget,) = await box.objects("poddisruptionbudgets", f"-n{SYSTEM}", "--field-selector=metadata.name=istiod")
    assert budget["spec"]["minAvailable"] == 1, budget["spec"]
    for version, title in ((2, "upgrade in place"), (1, "rollback")):
        async with load_on(box, "front", URL) as load:
            await box.command("pilotctl", "upgrade", "-y", *image(version), *three)
            await box.wait_available(SYSTEM, "istiod")
            await is_current(box, "front", "books")
        pods = await box.objects("pods", f"-n{SYSTEM}", "-lapp=istiod", "--field-selector=status.phase=Running")
        images = {pod["spec"]["containers"][0]["image"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
        assert images == {f"registry.example/pyistiod:{version}"}, images
        yield f"{title} of three replicas: {load.requests} requests at {RATE} a second, 0 failures"


async def run_short(box: Box) -> AsyncIterator[str]:
    """Install with kubectl, call services, and replace the control plane by another version."""
    await install_with_kubectl(box)
    await deploy_shop(box)
    await call_until(box, "front", URL)
    await route_from_gateway(box, SYSTEM)
    await call_gateway(box, SYSTEM)
    yield f"a request reaches a service through the gateway {box.age():.0f} s after the cluster"
    async with load_on(box, "front", URL) as load:
        await box.kubectl("set", "image", "deployment/istiod", f"-n{SYSTEM}", "discovery=registry.example/pyistiod:2")
        await box.wait_available(SYSTEM, "istiod")
        await is_current(box, "front", "books")
    yield f"an upgrade: {load.requests} requests, 0 failures"


async def _restart(box: Box, name: str) -> None:
    await box.kubectl("rollout", "restart", f"deployment/{name}", f"-n{SHOP}")
    await box.wait_available(SHOP, name)

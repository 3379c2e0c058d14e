"""A sample of three injected services on an installation, and calls through it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from tests.cluster.box.box import Box
from tests.cluster.manifests import echo, namespace

SHOP = "shop"
NAMES = ("front", "books", "reviews")


async def deploy_shop(box: Box, labels: Mapping[str, str] = {"istio-injection": "enabled"}) -> None:
    """Deploy three services into a namespace whose pods are injected."""
    await box.apply(namespace(SHOP, labels))
    for name in NAMES:
        await box.apply(echo(SHOP, name))
    await box.wait_available(SHOP, *NAMES)


async def call(box: Box, source: str, url: str, *options: str, area: str = SHOP) -> dict[str, Any]:
    """Return what an `echo` answers to a request from a pod. Raise CommandFailed if the response is no success."""
    output = await box.run_in(area, source, "curl", "-sS", "--fail-with-body", "--max-time", "5", *options, url)
    answer: dict[str, Any] = json.loads(output)
    return answer


async def call_until(box: Box, source: str, url: str, *options: str, area: str = SHOP) -> dict[str, Any]:
    """Call until there is an answer."""
    answer: dict[str, Any] = await box.until(
        lambda: call(box, source, url, *options, area=area), 20, f"{source} calls {url}"
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

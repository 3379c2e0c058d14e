"""The box itself: a Deployment and a Service, without a mesh."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from tests.cluster.box.box import Box
from tests.cluster.manifests import echo


async def run_workload(box: Box) -> AsyncIterator[str]:
    """Call a Service from a pod, by its name."""
    await box.apply(echo("default", "echo", replicas=2))
    await box.wait_available("default", "echo")
    await box.until(lambda: box.run_in("default", "echo", "curl", "-sS", "http://echo"), 10, "the Service answers")
    pods = {json.loads(await box.run_in("default", "echo", "curl", "-sS", "http://echo"))["pod"] for _ in range(20)}
    assert len(pods) == 2, pods
    yield "20 requests reached both pods of a Service"

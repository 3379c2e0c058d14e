"""Faults while services are called: no request may fail, and 10 s later proxies have the newest configuration."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator

from tests.cluster.box.box import Box
from tests.cluster.load import load_on
from tests.cluster.manifests import objects
from tests.cluster.mesh import SHOP, call_until, deploy_shop, is_current, istio
from tests.cluster.steps.installations import SYSTEM, install_with_kubectl

URL = "http://books/list"
KILLING_SECONDS, OUTAGE_SECONDS = 120, 120


async def run_faults(box: Box) -> AsyncIterator[str]:
    """Let parts fail one after the other."""
    await install_with_kubectl(box)
    await deploy_shop(box, replicas=2)
    await call_until(box, "front", URL)
    for fault in (_kill_randomly, _stop_api_server, _recreate_namespace):
        async with load_on(box, "front", URL) as load:
            seen = await fault(box)
            await is_current(box, "front", "books", seconds=10)
        yield f"{seen}: {load.requests} requests, 0 failures, newest configuration within 10 s"


async def _kill_randomly(box: Box) -> str:
    rng, kills, end = random.Random(1), 0, box.age() + KILLING_SECONDS
    while box.age() < end:
        for container in (c for runner in box.kubelet.find(SYSTEM, "istiod") for c in runner.main):
            container.signal(signal.SIGKILL)
            kills += 1
        await box.kubectl("scale", "deployment/reviews", f"-n{SHOP}", f"--replicas={rng.randint(1, 2)}")
        edit = objects(istio("networking", "DestinationRule", "reviews", SHOP, _settings(kills)))

        async def applied(edit: str = edit) -> bool:  # the validation webhook is down while istiod starts
            await box.apply(edit)
            return True

        await box.until(applied, 60, "an edit is valid")
        await asyncio.sleep(rng.uniform(1, 20))
    await box.wait_available(SYSTEM, "istiod")
    return f"istiod killed {kills} times in {KILLING_SECONDS} s, with edits and scaling"


def _settings(number: int) -> dict[str, object]:
    return {"host": "reviews", "trafficPolicy": {"connectionPool": {"tcp": {"maxConnections": 100 + number}}}}


async def _stop_api_server(box: Box) -> str:
    box.kubernetes.stop_one("kube-apiserver")
    await asyncio.sleep(OUTAGE_SECONDS)
    box.kubernetes.start_one("kube-apiserver")
    await box.until(box.api.is_ready, 60, "the API server is ready")
    return f"the API server stopped for {OUTAGE_SECONDS} s"


async def _recreate_namespace(box: Box) -> str:
    again = "again"
    for _ in range(2):
        await box.kubectl("create", "namespace", again)
        await box.apply(objects(istio("networking", "Sidecar", "default", again, {"egress": [{"hosts": ["./*"]}]})))
        await box.kubectl("wait", "--for=create", "configmap/istio-ca-root-cert", f"-n{again}", "--timeout=15s")
        await box.kubectl("delete", "namespace", again)
    return "a namespace deleted and made again"

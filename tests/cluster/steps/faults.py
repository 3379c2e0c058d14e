"""Faults while services are called: no request may fail, and 10 s later proxies have the newest configuration."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.cluster.box.addresses import NODE_NAMES
from tests.cluster.box.box import Box
from tests.cluster.load import load_on
from tests.cluster.manifests import objects
from tests.cluster.mesh import SHOP, call_until, deploy_shop, is_current, istio
from tests.cluster.steps.certificate_faults import (
    end_certificates,
    plug_in_authority,
    rotate_root,
    shift_clock,
)
from tests.cluster.steps.installations import SYSTEM, install_with_kubectl

URL = "http://books/list"
OUTAGE_SECONDS = 120
KILLING_SECONDS = int(os.environ.get("KILLING_SECONDS", "60"))
"""Istiod is killed at random for this time. Ten minutes find more than the default."""


async def run_faults(box: Box, only: str = "") -> AsyncIterator[str]:
    """Let parts fail one after the other, or one of FAULTS alone."""
    await install_with_kubectl(box)
    await deploy_shop(box, replicas=2)
    await call_until(box, "front", URL)
    for fault in [FAULTS[only]] if only else FAULTS.values():
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


async def _drain_node(box: Box) -> str:
    """Drain the node on which the load does not run. Budgets keep a replica of each workload."""
    budget = ("--selector=app=books", "--min-available=1")
    await box.kubectl("create", "poddisruptionbudget", "books", f"-n{SHOP}", *budget)
    for name in ("istiod", "istio-ingressgateway"):
        await box.kubectl("scale", f"deployment/{name}", f"-n{SYSTEM}", "--replicas=2")
    await box.wait_available(SYSTEM, "istiod", "istio-ingressgateway")
    home = box.kubelet.find(SHOP, "front")[0].pod["spec"]["nodeName"]
    (node,) = [name for name in NODE_NAMES if name != home]
    output = await box.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    await box.wait_available(SHOP, "books", "reviews")
    await box.kubectl("uncordon", node)
    return f"a node drained of {output.count('evicting pod')} pods"


async def _restore_backup(box: Box) -> str:
    """Restore etcd from a backup, and restart the components of Kubernetes as its documentation says."""
    box.kubernetes.back_up()
    await box.until(box.api.is_ready, 60, "the API server is ready")
    await box.kubectl("create", "namespace", "lost")
    await is_current(box, "front", "books")
    box.kubernetes.restore()
    await box.until(box.api.is_ready, 60, "the API server is ready")
    return "etcd restored from an older backup"


FAULTS: dict[str, Callable[[Box], Awaitable[str]]] = {
    "kill": _kill_randomly,
    "outage": _stop_api_server,
    "namespace": _recreate_namespace,
    "drain": _drain_node,
    "root": rotate_root,
    "expiry": end_certificates,
    "clock": shift_clock,
    "backup": _restore_backup,
    "authority": plug_in_authority,  # the last: the pod with the load is not restarted, so it learns no new roots
}

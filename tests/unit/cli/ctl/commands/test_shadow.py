"""pilotctl shadow: the replicas of the reference, and the exit status."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner, Result

from pilot.cli.ctl.commands.shadow import FOUND
from pilot.cli.pilotctl import pilotctl
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import write_kubeconfig

LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
METADATA = {"NAMESPACE": "shop", "INSTANCE_IPS": "10.0.0.1", "CLUSTER_ID": "Kubernetes"}
LABELS = {"app": "istiod", "istio.io/rev": "default"}


class Reference:
    """An istiod with two replicas in a cluster, to each of which a sidecar is connected."""

    def __init__(self) -> None:
        self.cluster = ApiServer()
        self.replicas = [TestServer(self._pages(f"web-{number}")) for number in (1, 2)]

    async def start(self) -> None:
        await self.cluster.start()
        meta = {"name": "istiod", "namespace": "istio-system"}
        self.cluster.put({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": LABELS}})
        for number, replica in enumerate(self.replicas):
            await replica.start_server()
            pod = {"name": f"istiod-{number}", "namespace": "istio-system", "labels": LABELS}
            self.cluster.put(
                {"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": {}, "status": {"phase": "Running"}}
            )
            self.cluster.forwards.ports["istio-system", pod["name"], 15014] = ("127.0.0.1", replica.port or 0)

    async def stop(self) -> None:
        for replica in self.replicas:
            await replica.close()
        await self.cluster.stop()

    def _pages(self, name: str) -> web.Application:
        """Return the pages of a replica. A sidecar has one listener there that this control plane would not send."""
        client = {"connectionId": f"{name}.shop-1", "metadata": METADATA, "watches": {LISTENER: ["surplus"]}}
        pages: dict[str, Any] = {
            "adsz": {"totalClients": 1, "clients": [client]},
            "syncz": [{"proxy": f"{name}.shop", "proxy_type": "sidecar"}],
            "config_dump": {"configs": [{"@type": LISTENER, "name": "surplus"}]},
        }

        async def show(request: web.Request) -> web.Response:
            return web.json_response(pages[request.match_info["page"]])

        app = web.Application()
        app.router.add_get("/debug/{page}", show)
        return app


@pytest.fixture
async def reference() -> AsyncIterator[Reference]:
    reference = Reference()
    await reference.start()
    yield reference
    await reference.stop()


async def run(reference: Reference, folder: pathlib.Path, *words: str) -> Result:
    kubeconfig = str(write_kubeconfig(reference.cluster, folder / "kubeconfig"))
    arguments = ["shadow", "-c", kubeconfig, *words]
    return await asyncio.to_thread(CliRunner().invoke, pilotctl, arguments, standalone_mode=False)


async def test_all_replicas_of_the_service_are_compared(reference: Reference, tmp_path: pathlib.Path) -> None:
    result = await run(reference, tmp_path, "-o", "json")
    assert result.exception is None, result.output
    report = json.loads(result.stdout)
    names = {cause["example"]["name"] for cause in report["causes"]}
    assert (report["proxies"], "surplus" in names) == (2, True)
    assert max(cause["proxies"] for cause in report["causes"]) == 2
    assert {request.verb for request in reference.cluster.requests} <= {"get", "list", "connect"}


async def test_a_reference_can_be_an_address(reference: Reference, tmp_path: pathlib.Path) -> None:
    address = f"http://127.0.0.1:{reference.replicas[0].port}"
    result = await run(reference, tmp_path, "-o", "json", "--reference", address)
    assert json.loads(result.stdout)["proxies"] == 1


@pytest.mark.parametrize(("verdict", "status"), [("unexplained", FOUND), ("reference leaks", 0)])
async def test_a_verdict_makes_the_command_fail(
    reference: Reference, verdict: str, status: int, tmp_path: pathlib.Path
) -> None:
    result = await run(reference, tmp_path, "--fail-on", verdict)
    assert (result.exit_code or result.return_value or 0) == status, result.output
    assert "Listener surplus" in result.stdout or "lds surplus" in result.stdout


async def test_a_service_that_does_not_exist_is_named(reference: Reference, tmp_path: pathlib.Path) -> None:
    result = await run(reference, tmp_path, "--reference", "istiod-old.mesh")
    assert "there is no Service istiod-old in the namespace mesh; --reference selects" in str(result.exception)

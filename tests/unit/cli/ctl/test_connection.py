"""Commands find the replicas of a control plane in a cluster, and reach them through port-forwards of the API server."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pilot.cli.pilotctl import pilotctl
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import write_kubeconfig
from tests.unit.cli.ctl.test_replicas import Replica


def pod(name: str, namespace: str = "istio-system", **more: Any) -> dict[str, Any]:
    """Return a Pod of a control plane. `more` are the revision and the phase."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": "istiod", "istio.io/rev": more.get("revision", "default")},
        },
        "spec": {"containers": [{"name": "discovery", "ports": [{"name": "http-monitoring", "containerPort": 15014}]}]},
        "status": {"phase": more.get("phase", "Running")},
    }


class Fleet:
    """An API server with the Pods of three replicas in istio-system, one of them of the revision canary."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.server, self._folder = ApiServer(), folder
        self.replicas = {
            "istiod-a": Replica("tea-1.shop"),
            "istiod-b": Replica("cups-1.shop"),
            "istiod-c": Replica("bowl-1.shop"),
        }
        self.kubeconfig = ""

    async def start(self) -> None:
        await self.server.start()
        self.kubeconfig = str(write_kubeconfig(self.server, self._folder / "kubeconfig"))
        self.server.put(pod("istiod-a"))
        self.server.put(pod("istiod-b"))
        self.server.put(pod("istiod-c", revision="canary"))
        self.server.put(pod("istiod-d", phase="Pending"))
        for name, replica in self.replicas.items():
            self.server.forwards.ports["istio-system", name, 15014] = ("127.0.0.1", replica.server_port)

    async def stop(self) -> None:
        for replica in self.replicas.values():
            replica.release.set()
            await asyncio.to_thread(replica.shutdown)
            replica.server_close()
        await self.server.stop()

    async def run(self, *words: str, **environment: str) -> Result:
        return await asyncio.to_thread(CliRunner(env=environment).invoke, pilotctl, words, standalone_mode=False)


@pytest.fixture
async def fleet(tmp_path: pathlib.Path) -> AsyncIterator[Fleet]:
    fleet = Fleet(tmp_path)
    await fleet.start()
    yield fleet
    await fleet.stop()


def proxies(result: Result) -> list[str]:
    assert result.exception is None, result.output
    return [status["proxy"] for status in json.loads(result.stdout)]


async def test_all_running_replicas_of_the_cluster_answer(fleet: Fleet) -> None:
    """Unlike in release note 54518, a revision is only a filter: an incident may be in any revision."""
    everything = ["tea-1.shop", "cups-1.shop", "bowl-1.shop"]
    assert proxies(await fleet.run("proxy-status", "-o", "json", "-c", fleet.kubeconfig)) == everything
    assert proxies(await fleet.run("-c", fleet.kubeconfig, "proxy-status", "-o", "json")) == everything
    assert proxies(await fleet.run("proxy-status", "-o", "json", KUBECONFIG=fleet.kubeconfig)) == everything


async def test_a_revision_selects_replicas(fleet: Fleet) -> None:
    words = ("proxy-status", "-o", "json", "-c", fleet.kubeconfig, "--revision", "canary")
    assert proxies(await fleet.run(*words)) == ["bowl-1.shop"]


async def test_versions_name_the_revisions_of_the_replicas(fleet: Fleet) -> None:
    result = await fleet.run("version", "-o", "json", "-c", fleet.kubeconfig)
    revisions = [one["Revision"] for one in json.loads(result.stdout)["meshVersion"]]
    assert revisions == ["default", "default", "canary"]


async def test_an_address_overrides_the_kubeconfig(fleet: Fleet) -> None:
    words = ("proxy-status", "-o", "json", "--address", fleet.replicas["istiod-b"].address)
    assert proxies(await fleet.run(*words, KUBECONFIG=fleet.kubeconfig)) == ["cups-1.shop"]


async def test_a_namespace_without_replicas_is_an_error(fleet: Fleet) -> None:
    result = await fleet.run("proxy-status", "-c", fleet.kubeconfig, "-i", "mesh")
    assert "no Pod of a control plane runs in the namespace mesh (labels app=istiod)" in str(result.exception)


async def test_a_replica_that_hangs_is_named_by_its_pod(fleet: Fleet) -> None:
    fleet.replicas["istiod-b"].hang()
    result = await fleet.run("proxy-status", "-o", "json", "-c", fleet.kubeconfig)
    assert proxies(result) == ["tea-1.shop", "bowl-1.shop"]
    assert result.stderr.startswith("! replica istiod-b.istio-system is missing: no response within ")


async def test_the_reason_of_a_failed_port_forward_is_reported(fleet: Fleet) -> None:
    del fleet.server.forwards.ports["istio-system", "istiod-b", 15014]
    result = await fleet.run("proxy-status", "-o", "json", "-c", fleet.kubeconfig)
    assert proxies(result) == ["tea-1.shop", "bowl-1.shop"]
    assert "cannot reach istiod-b.istio-system: no address is registered for port 15014" in result.stderr


async def test_large_pages_are_forwarded_whole(fleet: Fleet) -> None:
    names = [f"proxy-{number}.shop" for number in range(3_000)]
    fleet.replicas["istiod-a"].proxies = tuple(names)
    assert proxies(await fleet.run("ps", "-o", "json", "-c", fleet.kubeconfig))[: len(names)] == names


OTHER = "istiod-c.istio-system is another control plane (not pyistiod); --revision NAME selects the replicas"


async def test_another_control_plane_is_left_out(fleet: Fleet) -> None:
    """During a migration, Istio's istiod has the label app=istiod, too."""
    fleet.replicas["istiod-c"].headers.clear()
    result = await fleet.run("proxy-status", "-o", "json", "-c", fleet.kubeconfig)
    assert proxies(result) == ["tea-1.shop", "cups-1.shop"]
    assert result.stderr == f"! {OTHER}\n"
    assert not result.return_value


async def test_a_proxy_is_found_beside_another_control_plane(fleet: Fleet) -> None:
    fleet.replicas["istiod-c"].headers.clear()
    result = await fleet.run("proxy-status", "cups-1.shop", "-o", "json", "-c", fleet.kubeconfig)
    assert proxies(result) == ["cups-1.shop"]
    assert "is missing" not in result.stderr


async def test_a_rollout_counts_no_other_control_plane(fleet: Fleet) -> None:
    fleet.replicas["istiod-c"].headers.clear()
    result = await fleet.run("rollout", "status", "virtualservice/shop/tea", "-c", fleet.kubeconfig)
    assert result.exception is None, result.exception
    assert "is live on 1 of 1 affected proxy at istiod-b.istio-system" in result.stdout
    assert result.stderr == f"! {OTHER}\n"


async def test_a_rollout_beside_another_control_plane_needs_every_replica(fleet: Fleet) -> None:
    fleet.replicas["istiod-c"].headers.clear()
    fleet.replicas["istiod-b"].hang()
    result = await fleet.run("rollout", "status", "virtualservice/shop/tea", "-c", fleet.kubeconfig)
    assert "a replica does not answer, so nothing is known about its proxies: istiod-b" in str(result.exception)
    assert "istiod-c" not in str(result.exception)


async def test_analyze_names_only_the_replicas_that_it_asked(fleet: Fleet) -> None:
    fleet.replicas["istiod-c"].headers.clear()
    for replica in fleet.replicas.values():
        replica.problems = []
    result = await fleet.run("analyze", "--use-kube=false", "-c", fleet.kubeconfig)
    assert "Checked the configuration of the control plane at istiod-a.istio-system, istiod-b.istio-system." in (
        result.stdout
    )


async def test_a_replica_of_an_earlier_version_is_missing(fleet: Fleet) -> None:
    """1.0.0rc1 sends no header with its version. During an upgrade, nothing is known about the proxies of such a
    replica."""
    fleet.replicas["istiod-c"].headers = {"Server": "Python/3.12 aiohttp/3.11.0"}
    result = await fleet.run("rollout", "status", "virtualservice/shop/tea", "-c", fleet.kubeconfig)
    assert "nothing is known about its proxies: istiod-c.istio-system: " in str(result.exception)


async def test_only_another_control_plane_is_an_error(fleet: Fleet) -> None:
    fleet.replicas["istiod-c"].headers.clear()
    result = await fleet.run("proxy-status", "-c", fleet.kubeconfig, "--revision", "canary")
    assert str(result.exception) == OTHER


@pytest.fixture
def shop(fleet: Fleet) -> Fleet:
    """Return the fleet with the Deployments tea and bare, whose Pods are running. Proxies of tea are connected."""
    for name, pods in (("tea", ("tea-0", "tea-1")), ("bare", ("bare-0",))):
        labels = {"app": name}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {}}},
        }
        fleet.server.put(deployment)
        for each in pods:
            plain = pod(each, "shop")
            fleet.server.put({**plain, "metadata": {**plain["metadata"], "labels": labels}})
    return fleet


@pytest.mark.parametrize("words", [("deployment/tea.shop",), ("deploy/tea", "-n", "shop"), ("pod/tea-1.shop",)])
async def test_a_workload_stands_for_its_first_connected_proxy(shop: Fleet, words: tuple[str, ...]) -> None:
    assert proxies(await shop.run("proxy-status", *words, "-o", "json", "-c", shop.kubeconfig)) == ["tea-1.shop"]
    result = await shop.run("proxy-config", "clusters", *words, "-o", "json", "-c", shop.kubeconfig)
    assert json.loads(result.stdout) == [{"name": "cluster of tea-1.shop"}]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("deployment/cups.shop", "there is no deployment shop/cups"),
        ("deployment/bare.shop", "no running Pod of the deployment shop/bare has a connected proxy"),
    ],
)
@pytest.mark.parametrize("command", [("describe",), ("authz", "check"), ("proxy-config", "all"), ("proxy-status",)])
async def test_a_workload_without_a_connected_proxy_is_refused(
    shop: Fleet, command: tuple[str, ...], name: str, message: str
) -> None:
    result = await shop.run(*command, name, "-c", shop.kubeconfig)
    assert message in str(result.exception)

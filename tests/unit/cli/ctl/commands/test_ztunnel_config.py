"""pilotctl ztunnel-config reads the config_dump of a ztunnel in a Pod, at an address or in a file."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from testing.apiserver.server import ApiServer
from testing.servers.fixed_pages import FixedPages
from tests.unit.cli.ctl.commands.test_install import Shell

WAYPOINT = {"destination": "shop/waypoint.shop.svc.cluster.local", "port": 15008}
CERTIFICATE = {"validFrom": "2024-01-01T00:00:00Z", "expirationTime": "2099-01-01T00:00:00Z"}
EXPIRED = {"validFrom": "2024-01-01T00:00:00Z", "expirationTime": "2024-01-02T00:00:00Z"}


def workload(name: str, ip: str, **more: Any) -> dict[str, Any]:
    base = {"uid": name, "name": name, "namespace": "shop", "workloadIps": [ip], "node": "pier-1", "status": "Healthy"}
    return {**base, "protocol": "HBONE", **more}


def service(name: str, vip: str, *endpoints: str, **more: Any) -> dict[str, Any]:
    base = {"name": name, "namespace": "shop", "hostname": f"{name}.shop.svc.cluster.local", "vips": [f"net/{vip}"]}
    return {**base, "endpoints": {uid: {"workloadUid": uid} for uid in endpoints}, **more}


CONNECTION = {"src": "10.1.0.1:999", "actualDst": "10.1.0.2:15008", "originalDst": "10.2.0.1:80", "protocol": "HBONE"}
DUMP = {
    "workloads": [
        workload("tea-1", "10.1.0.1", waypoint=WAYPOINT),
        workload("cup-1", "10.1.0.2", node="pier-2", status="Unhealthy", waypoint={"destination": "net/10.9.9.9"}),
        workload("pot-1", "10.1.0.3", namespace="bar", protocol="TCP"),
    ],
    "services": [service("waypoint", "10.2.0.9"), service("tea", "10.2.0.1", "tea-1", "cup-1", waypoint=WAYPOINT)],
    "policies": [{"name": "deny", "namespace": "shop", "action": "Deny", "scope": "Namespace"}],
    "certificates": [
        {"identity": "sa/tea", "state": "Available", "certChain": [{**CERTIFICATE, "serialNumber": "255"}] * 2}
        | {"rootCerts": [{**EXPIRED, "serialNumber": "16"}]},
        {"identity": "sa/cup", "state": "Unavailable: no CA"},
    ],
    "workloadState": {
        "b": {"info": {"name": "tea-1", "namespace": "shop"}, "connections": {"outbound": [CONNECTION]}},
        "a": {"info": {"name": "cup-1", "namespace": "shop"}, "connections": {"inbound": [CONNECTION]}},
    },
}


def pod(name: str, namespace: str, app: str, node: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": {"app": app}}
    spec = {"nodeName": node, "containers": []}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


class Ztunnels(Shell):
    """Two ztunnels on two nodes, with one Pod of a workload each."""

    pages: FixedPages

    async def rows(self, *words: str) -> list[list[str]]:
        result = await self("ztunnel-config", *words)
        assert result.exit_code == 0, result.output
        return [line.split() for line in result.stdout.splitlines()]


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Ztunnels]:
    server = ApiServer()
    await server.start()
    shell = Ztunnels(server, tmp_path)
    shell.pages = FixedPages(lambda path: json.dumps(DUMP) if path == "/config_dump" else "level is info\n")
    for number, name in ((1, "tea-1"), (2, "cup-1")):
        server.put(pod(f"ztunnel-{number}", "istio-system", "ztunnel", f"pier-{number}"))
        server.put(pod(name, "shop", name, f"pier-{number}"))
        server.forwards.ports["istio-system", f"ztunnel-{number}", 15000] = ("127.0.0.1", shell.pages.server_port)
    yield shell
    await asyncio.to_thread(shell.pages.stop)
    await server.stop()


async def test_workloads_services_and_policies_are_listed(shell: Ztunnels) -> None:
    assert (await shell.rows("workload"))[1:] == [
        ["bar", "pot-1", "10.1.0.3", "pier-1", "None", "TCP"],
        ["shop", "cup-1", "10.1.0.2", "pier-2", "NA", "HBONE"],
        ["shop", "tea-1", "10.1.0.1", "pier-1", "waypoint", "HBONE"],
    ]
    assert [row[1] for row in (await shell.rows("w", "--address", "10.1.0.2"))[1:]] == ["cup-1"]
    assert [row[1] for row in (await shell.rows("w", "--workload-namespace", "bar"))[1:]] == ["pot-1"]
    assert (await shell.rows("svc"))[1] == ["shop", "tea", "10.2.0.1", "waypoint", "1/2"]
    assert (await shell.rows("policies"))[1:] == [["shop", "deny", "Deny", "Namespace"]]
    selected = await shell("zc", "workload", "--workload-node", "pier-2", "-o", "json")
    assert json.loads(selected.stdout) == [DUMP["workloads"][1]]
    assert json.loads((await shell("zc", "all", "-o", "json")).stdout) == DUMP


async def test_a_pod_or_a_node_selects_one_of_several_ztunnels(shell: Ztunnels) -> None:
    unclear = await shell("ztunnel-config", "connections")
    assert (unclear.exit_code, "specify POD or --node" in unclear.stderr) == (2, True)
    both = [
        ["cup-1.shop", "Inbound", "cup-1.shop:15008", "tea-1.shop:999", "tea.shop.svc.cluster.local:80", "HBONE"],
        ["tea-1.shop", "Outbound", "tea-1.shop:999", "cup-1.shop:15008", "tea.shop.svc.cluster.local:80", "HBONE"],
    ]
    assert (await shell.rows("connections", "--node", "pier-1"))[1:] == both
    assert (await shell.rows("connections", "ztunnel-2", "--direction", "inbound"))[1:] == both[:1]
    assert (await shell.rows("connections", "tea-1.shop", "--raw"))[1:] == [
        ["tea-1.shop", "Outbound", "10.1.0.1:999", "10.1.0.2:15008", "10.2.0.1:80", "HBONE"]
    ]
    assert (await shell("ztunnel-config", "certificate", "--node", "pier-3")).exit_code == 1


async def test_certificates_are_listed_with_their_validity(shell: Ztunnels, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(DUMP))
    expected = [
        ["sa/tea", "Leaf", "Available", "true", "ff", "2099-01-01T00:00:00Z", "2024-01-01T00:00:00Z"],
        ["sa/tea", "Intermediate", "Available", "true", "ff", "2099-01-01T00:00:00Z", "2024-01-01T00:00:00Z"],
        ["sa/tea", "Root", "Available", "false", "10", "2024-01-02T00:00:00Z", "2024-01-01T00:00:00Z"],
        ["sa/cup", "NA", "Unavailable", "false", "NA", "NA", "NA"],
    ]
    assert (await shell.rows("certs", "--file", str(file)))[1:] == expected
    assert (await shell.rows("certs", "--ztunnel", f"127.0.0.1:{shell.pages.server_port}"))[1:] == expected
    file.write_text("{}")
    assert "not a config_dump of ztunnel" in (await shell("zc", "certs", "--file", str(file))).stderr


async def test_log_levels_are_set_in_the_form_of_ztunnel(shell: Ztunnels) -> None:
    result = await shell("ztunnel-config", "log", "--level", "ztunnel::proxy:debug,warning")
    assert result.stdout.splitlines()[:2] == ["ztunnel-1.istio-system:", "level is info"], result.output
    assert shell.pages.requests == [("POST", "/logging?level=ztunnel%3A%3Aproxy%3Ddebug%2Cwarn")] * 2
    await shell("ztunnel-config", "log", "ztunnel-1", "--reset")
    assert shell.pages.requests[2:] == [("POST", "/logging?reset")]
    assert (await shell("ztunnel-config", "log", "--level", "loud")).exit_code == 2

"""pilotctl waypoint creates, lists and deletes the Gateways of waypoints."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
import yaml
from click.testing import CliRunner

from pilot.cli.pilotctl import pilotctl
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import server_with_crds
from tests.unit.cli.ctl.commands.test_install import Shell

GROUP = "gateway.networking.k8s.io"


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Shell]:
    async with server_with_crds() as server:
        for name in ("shop", "bar"):
            server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield Shell(server, tmp_path)


def use_of(server: ApiServer, namespace: str) -> str:
    plain = server.get("", "namespaces", "", namespace)
    assert plain is not None
    return str(plain["metadata"].get("labels", {}).get("istio.io/use-waypoint", ""))


async def test_the_generated_gateway_is_the_applied_one(shell: Shell) -> None:
    words = ("-n", "shop", "--for", "all", "--revision", "canary")
    result = await asyncio.to_thread(CliRunner().invoke, pilotctl, ["waypoint", "generate", *words])
    expected = yaml.safe_load(result.stdout)
    assert expected["metadata"] == {
        "labels": {"istio.io/waypoint-for": "all", "istio.io/rev": "canary"},
        "name": "waypoint",
        "namespace": "shop",
    }
    result = await shell("waypoint", "apply", *words)
    assert result.stdout == "✅ waypoint shop/waypoint applied\n", result.output
    applied = shell.server.get(GROUP, "gateways", "shop", "waypoint")
    assert applied is not None
    assert applied["spec"]["gatewayClassName"] == "istio-waypoint"
    assert applied["spec"]["listeners"][0]["protocol"] == "HBONE"
    assert applied["metadata"]["labels"] == expected["metadata"]["labels"]


async def test_a_namespace_is_enrolled_once(shell: Shell) -> None:
    first = await shell("waypoint", "apply", "-n", "shop", "--enroll-namespace")
    assert use_of(shell.server, "shop") == "waypoint", first.output
    assert "the namespace shop is not in ambient mode" in first.stderr
    second = await shell("waypoint", "apply", "-n", "shop", "--name", "other", "--enroll-namespace")
    assert (second.exit_code, use_of(shell.server, "shop")) == (1, "waypoint")
    await shell("waypoint", "apply", "-n", "shop", "--name", "other", "--enroll-namespace", "--overwrite")
    assert use_of(shell.server, "shop") == "other"


async def test_waypoints_are_listed_with_their_status(shell: Shell) -> None:
    for namespace, name in (("shop", "one"), ("bar", "two")):
        await shell("waypoint", "apply", "-n", namespace, "--name", name)
    gateway = shell.server.get(GROUP, "gateways", "shop", "one")
    assert gateway is not None
    condition = {"type": "Programmed", "status": "True", "reason": "Programmed", "message": "ok"}
    shell.server.put({**gateway, "status": {"conditions": [condition]}})
    lines = [line.split() for line in (await shell("waypoint", "list", "-A")).stdout.splitlines()]
    assert lines[1:] == [["bar", "two", "default", "none", "False"], ["shop", "one", "default", "none", "True"]]
    own = (await shell("waypoint", "list", "-n", "shop")).stdout.splitlines()
    assert own[0].split() == ["NAME", "REVISION", "TRAFFIC", "TYPE", "PROGRAMMED"]
    status = (await shell("waypoint", "status", "-n", "shop")).stdout.splitlines()
    assert status[1].split() == ["one", "True", "Programmed", "Programmed", "ok"]
    assert (await shell("waypoint", "status", "-n", "shop", "--name", "two")).stdout == "No waypoints found.\n"
    assert (await shell("waypoint", "status", "-n", "shop", "--wait")).exit_code == 0
    assert (await shell("waypoint", "list", "-n", "none")).stdout == "No waypoints found.\n"


async def test_waypoints_are_deleted_by_name_revision_or_all(shell: Shell) -> None:
    for name, revision in (("one", "r1"), ("two", "r2"), ("three", "r2")):
        await shell("waypoint", "apply", "-n", "shop", "--name", name, "--revision", revision)
    result = await shell("waypoint", "delete", "one", "none", "-n", "shop")
    assert result.stdout.splitlines() == ["waypoint shop/one deleted", "waypoint shop/none not found"]
    result = await shell("waypoint", "delete", "--revision", "r2", "-n", "shop")
    assert sorted(result.stdout.splitlines()) == ["waypoint shop/three deleted", "waypoint shop/two deleted"]
    result = await shell("waypoint", "delete", "--revision", "r2", "-n", "shop")
    assert result.stdout == "No waypoints of the revision r2 in the namespace shop: nothing was deleted.\n"
    result = await shell("waypoint", "delete", "--all", "-n", "shop")
    assert result.stdout == "No waypoints in the namespace shop: nothing was deleted.\n"
    assert (await shell("waypoint", "delete", "-n", "shop")).exit_code == 2


async def test_waiting_ends_at_the_timeout(shell: Shell) -> None:
    for command in ("apply", "status"):
        result = await shell("waypoint", command, "-n", "shop", "--wait", "--waypoint-timeout", "10ms")
        assert result.exit_code == 1
        assert "shop/waypoint is not programmed after 0.01 s" in result.stderr


async def test_a_timeout_without_a_unit_is_an_error(shell: Shell) -> None:
    result = await shell("waypoint", "apply", "-n", "shop", "--wait", "--waypoint-timeout", "10")
    assert result.exit_code == 2
    assert "did you mean 10s?" in result.stderr


async def test_the_default_namespace_is_that_of_the_context(shell: Shell, tmp_path: pathlib.Path) -> None:
    in_shop = Shell(shell.server, tmp_path, "shop")
    assert (await in_shop("waypoint", "apply")).stdout == "✅ waypoint shop/waypoint applied\n"
    assert len((await in_shop("waypoint", "list")).stdout.splitlines()) == 2
    assert len((await in_shop("waypoint", "status")).stdout.splitlines()) == 2
    assert (await in_shop("waypoint", "list", "-n", "bar")).stdout == "No waypoints found.\n"
    assert (await in_shop("waypoint", "delete", "waypoint")).stdout == "waypoint shop/waypoint deleted\n"


def test_a_generated_gateway_has_no_namespace_by_default() -> None:
    result = CliRunner().invoke(pilotctl, ["waypoint", "generate"])
    assert yaml.safe_load(result.stdout)["metadata"] == {"name": "waypoint"}

"""pilotctl create-remote-secret prints a Secret that the control plane accepts."""

from __future__ import annotations

import base64
import pathlib
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import pytest
import yaml

from testing.apiserver.server import ApiServer
from tests.unit.cli.ctl.commands.test_install import Shell

command = import_module("pilot.cli.ctl.commands.create_remote_secret")
SYSTEM, ACCOUNT = "istio-system", "istio-reader-service-account"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def token_secret(name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": SYSTEM,
            "annotations": {"kubernetes.io/service-account.name": ACCOUNT},
        },
        "type": "kubernetes.io/service-account-token",
        "data": {key.replace("_", "."): encoded(value) for key, value in data.items()},
    }


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Shell]:
    server = ApiServer()
    await server.start()
    server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "u-1"}})
    server.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": SYSTEM}})
    yield Shell(server, tmp_path)
    await server.stop()


async def test_the_secret_has_a_kubeconfig_with_the_token(shell: Shell) -> None:
    shell.server.put(token_secret("reader", token="t", ca_crt="root"))
    result = await shell("create-remote-secret", "--name", "west", "--server", "https://west:6443")
    assert result.exit_code == 0, result.output
    secret = next(yaml.safe_load_all(result.stdout))
    assert secret["metadata"] == {
        "annotations": {"networking.istio.io/cluster": "west"},
        "labels": {"istio/multiCluster": "true"},
        "name": "istio-remote-secret-west",
        "namespace": SYSTEM,
    }
    kubeconfig = yaml.safe_load(secret["stringData"]["west"])
    assert kubeconfig["clusters"][0]["cluster"] == {
        "certificate-authority-data": encoded("root"),
        "server": "https://west:6443",
    }
    assert kubeconfig["users"] == [{"name": "west", "user": {"token": "t"}}]
    assert kubeconfig["current-context"] == "west"
    assert "\n  west: |\n    apiVersion: v1\n" in result.stdout


async def test_the_server_and_the_name_have_defaults(shell: Shell) -> None:
    shell.server.put(token_secret("reader", token="t", ca_crt="root"))
    result = await shell("create-remote-secret")
    secret = next(yaml.safe_load_all(result.stdout))
    assert secret["metadata"]["name"] == "istio-remote-secret-u-1"
    assert shell.server.url in secret["stringData"]["u-1"]


async def test_a_token_secret_is_created(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_ATTEMPTS", 1)
    monkeypatch.setattr(command, "_DELAY", 0.0)
    result = await shell("create-remote-secret", "--name", "west")
    name = f"{ACCOUNT}-istio-remote-secret-token"
    assert f"the Secret {SYSTEM}/{name} has no token" in result.stderr
    created = shell.server.get("", "secrets", SYSTEM, name)
    assert created is not None
    assert created["type"] == "kubernetes.io/service-account-token"


@pytest.mark.parametrize("words", [("--service-account", "none"), ("--create-service-account=false", "-n", "none")])
async def test_a_missing_account_is_named(shell: Shell, words: tuple[str, ...]) -> None:
    result = await shell("create-remote-secret", *words)
    assert (result.exit_code, "there is no ServiceAccount" in result.stderr, "none" in result.stderr) == (1, True, True)


async def test_a_missing_account_of_readers_is_created_with_its_permissions(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_ATTEMPTS", 1)
    monkeypatch.setattr(command, "_DELAY", 0.0)
    result = await shell("create-remote-secret", "--name", "west", "-n", "mesh")
    assert f"the Secret mesh/{ACCOUNT}-istio-remote-secret-token has no token" in result.stderr
    assert shell.server.get("", "namespaces", "", "mesh") is not None
    assert shell.server.get("", "serviceaccounts", "mesh", ACCOUNT) is not None
    group, role = "rbac.authorization.k8s.io", "istio-reader-clusterrole-mesh"
    assert shell.server.get(group, "clusterroles", "", role)["rules"]
    binding = shell.server.get(group, "clusterrolebindings", "", role)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "mesh"}]


async def test_the_secret_of_a_configuration_cluster(shell: Shell) -> None:
    metadata = {"name": "istiod", "namespace": "mesh"}
    shell.server.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    token = token_secret("reader", token="t", ca_crt="root")
    annotations = {"kubernetes.io/service-account.name": "istiod"}
    token["metadata"] |= {"namespace": "mesh", "annotations": annotations}
    shell.server.put(token)
    words = ("--type=config", "--name=west", "-n", "mesh", "--tls-server-name=api.west", "--server=https://west:6443")
    result = await shell(
        "create-remote-secret", *words, "--auth-type", "bearer-token", "--create-service-account=false"
    )
    assert result.exit_code == 0, result.output
    secret = next(yaml.safe_load_all(result.stdout))
    assert (secret["metadata"]["name"], secret["metadata"]["namespace"]) == ("istio-kubeconfig", "mesh")
    kubeconfig = yaml.safe_load(secret["stringData"]["config"])
    assert kubeconfig["clusters"][0]["cluster"]["tls-server-name"] == "api.west"

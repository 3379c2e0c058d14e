"""pilotctl precheck finds what prevents an installation, and changes nothing."""

from __future__ import annotations

import json
import pathlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import GATEWAY_API, GroupKind
from testing.apiserver import discovery
from testing.apiserver.definitions import definition
from testing.kube.kube_access import server_with_crds
from tests.unit.cli.ctl.commands.test_install import Shell


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Shell]:
    async with server_with_crds() as server:
        yield Shell(server, tmp_path)


async def codes(shell: Shell, *words: str, status: int = 1) -> list[tuple[str, ...]]:
    """Return istioctl's code, the severity and the name of each finding."""
    result = await shell("precheck", *words, "-o", "json")
    assert result.exit_code == status, result.output
    return [(one["istioCode"], one["severity"], one.get("name", "")) for one in json.loads(result.stdout)]


async def test_a_sound_cluster_has_no_findings(shell: Shell) -> None:
    result = await shell("precheck")
    assert (result.exit_code, result.stdout) == (
        0,
        "✔ No issues found: the control plane can be installed or upgraded.\n",
    ), result.output


async def test_an_old_kubernetes_is_an_error(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(discovery.VERSION, "gitVersion", "v1.31.9")
    assert await codes(shell) == [("IST0142", "error", "")]
    assert await codes(shell, "--skip-controlplane", status=0) == []


async def test_a_version_that_is_not_understood_is_a_warning(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(discovery.VERSION, "gitVersion", "v0.0.0-master+$Format:%H$")
    result = await shell("precheck")
    text = "the version of Kubernetes, 'v0.0.0-master+$Format:%H$', is not understood; the minimum is 1.32"
    assert result.stdout.splitlines()[0] == f"Warning [kubernetes-version-unknown] {text}"


@pytest.mark.parametrize("version", ["v1.33.1+k3s1", "v1.32.4-eks-2f46c53", "1.32", "v1.34.0-rc.1"])
async def test_versions_of_distributions_are_understood(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setitem(discovery.VERSION, "gitVersion", version)
    assert await codes(shell, status=0) == []


async def test_missing_permissions_are_listed_by_kind(shell: Shell) -> None:
    def authorizer(user: str, groups: Sequence[str], attributes: Mapping[str, Any]) -> bool:
        return (attributes.get("resource"), attributes.get("verb")) != ("deployments", "create")

    shell.server.tokens.authorizer = authorizer
    result = await shell("precheck")
    assert result.stdout.splitlines()[0] == (
        "Error [IST0141 permission-missing] (Deployment istio-system) the user may not create deployments in the "
        "namespace istio-system: no RBAC policy matched"
    )


async def test_versions_of_the_gateway_api_are_checked(shell: Shell) -> None:
    for name, version in (("HTTPRoute", "v1beta1"), ("Gateway", "v1alpha2")):
        kind = CATALOGUE.find(GroupKind(GATEWAY_API, name))
        assert kind is not None
        shell.server.put(definition(kind, version))
    assert await codes(shell) == [
        ("IST0156", "error", "gateways.gateway.networking.k8s.io"),
        ("IST0172", "warning", "httproutes.gateway.networking.k8s.io"),
    ]


async def test_objects_that_would_be_rejected_are_listed(shell: Shell) -> None:
    for namespace in ("shop", "bar"):
        metadata = {"name": "web", "namespace": namespace}
        route = {"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": metadata}
        shell.server.put({**route, "spec": {"hosts": ["web"], "http": [{"match": [{"uri": {"regex": "("}}]}]}})
    findings = await codes(shell, "-n", "shop")
    assert findings
    assert {name for _, _, name in findings} == {"web"}
    assert len(await codes(shell)) == 2 * len(findings)


async def test_changes_since_an_old_version_are_listed(shell: Shell) -> None:
    metadata = {"name": "zipkin", "namespace": "istio-system"}
    shell.server.put({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {}})
    assert await codes(shell, "--from-version", "1.21") == [("IST0169", "warning", "zipkin")]
    assert await codes(shell, "--from-version", "1.22", status=0) == []
    assert (await shell("precheck", "--from-version", "new")).exit_code == 2

"""`analyze` on a cluster: objects that the control plane does not read, missing permissions, and other clusters."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pilot.cli.ctl.client import PageClient
from pilot.cli.pilotctl import pilotctl
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import write_kubeconfig
from tests.unit.cli.ctl.analyzers.test_istio_codes import BY_SERVICE, INJECTED, INJECTOR, deployment, pod, service

AUTO = "containers: [{name: istio-proxy, image: auto}]"


class TwoClusters:
    """Two API servers, whose kubeconfig has a context for each."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.first, self.second = ApiServer(), ApiServer()
        self._path = folder / "kubeconfig"

    async def start(self) -> None:
        configs = []
        for name, server in (("first", self.first), ("second", self.second)):
            await server.start()
            path = write_kubeconfig(server, self._path.with_name(name))
            configs.append(yaml.safe_load(path.read_text()))
            for part in ("clusters", "users", "contexts"):
                for entry in configs[-1][part]:
                    entry["name"] = name
            for entry in configs[-1]["contexts"]:
                entry["context"] |= {"cluster": name, "user": name}
        both = {part: configs[0][part] + configs[1][part] for part in ("clusters", "users", "contexts")}
        self._path.write_text(yaml.dump({**configs[0], **both, "current-context": "first"}))

    async def analyze(self, *words: str) -> Result:
        words = (
            "analyze",
            "--address",
            ":15014",
            "--kubeconfig",
            str(self._path),
            "--output-threshold",
            "info",
            *words,
        )
        return await asyncio.to_thread(CliRunner().invoke, pilotctl, list(words))


@pytest.fixture
async def clusters(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TwoClusters]:
    monkeypatch.setattr(PageClient, "get", lambda *_, **__: [])
    clusters = TwoClusters(tmp_path)
    await clusters.start()
    yield clusters
    await clusters.first.stop()
    await clusters.second.stop()


def put(server: ApiServer, *objects: str) -> None:
    for text in objects:
        server.put(yaml.safe_load(text))


def codes(result: Result) -> list[tuple[str, str]]:
    findings: list[dict[str, Any]] = json.loads(result.stdout)
    return [(f["istioCode"], f["name"]) for f in findings]


async def test_objects_that_the_control_plane_does_not_read_are_checked(clusters: TwoClusters) -> None:
    hook = INJECTOR.format("", BY_SERVICE)
    put(clusters.first, INJECTED, pod(AUTO), deployment(AUTO), hook)
    result = await clusters.analyze("-o", "json")
    assert codes(result) == [("IST0139", "istio-sidecar-injector"), ("IST0147", "web-0")]
    assert result.exit_code == 79
    text = (await clusters.analyze()).stdout
    assert "Error [IST0147 image-not-injected] (Pod shop/web-0) spec.containers: the image of the proxy is auto" in text
    assert text.splitlines()[-1].endswith("Checked 4 objects of the cluster.")


async def test_only_kinds_of_selected_analyzers_are_listed(clusters: TwoClusters) -> None:
    put(clusters.first, INJECTED, pod(), deployment(), service("{name: http, port: 80}"))
    text = (await clusters.analyze("--analyzer", "conditions.ConditionAnalyzer")).stdout
    assert text.splitlines()[-1].endswith("Checked 1 object of the cluster.")


async def test_services_are_compared_with_those_of_other_clusters(clusters: TwoClusters) -> None:
    """IST0170."""
    put(clusters.first, service("{name: http, port: 80}"), service("{name: http, port: 80, nodePort: 30001}", "api"))
    put(clusters.second, service("{name: http, port: 81}"), service("{name: http, port: 80, nodePort: 30002}", "api"))
    assert codes(await clusters.analyze("-o", "json")) == []
    assert codes(await clusters.analyze("-o", "json", "--remote-contexts", "second")) == [("IST0170", "web")]
    text = (await clusters.analyze("--remote-contexts", "second")).stdout
    assert "the Service differs between this cluster and second: its ports differ" in text


async def test_unusable_context_is_an_error(clusters: TwoClusters) -> None:
    result = await clusters.analyze("--remote-contexts", "third")
    assert result.exit_code != 0


async def test_kind_that_may_not_be_listed_is_named(clusters: TwoClusters) -> None:
    put(clusters.first, INJECTED, pod())
    clusters.first.faults.refuse(403, matching=lambda info: info.resource.kind == "Deployment")
    result = await clusters.analyze("-o", "json")
    assert codes(result) == [("IST0103", "web-0")]
    assert "! Deployment objects cannot be listed: " in result.stderr
    assert (
        "not checked: annotations.K8sAnalyzer, deployment.MultiServiceAnalyzer, applicationUID.Analyzer"
        in result.stderr
    )


ENTRY = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: shop}
spec: {hosts: [a.example.com], ports: [{number: 1, name: a, protocol: TCP}], resolution: NONE}
"""
CAPTURE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: istio-b, namespace: istio-system, labels: {istio.io/rev: b}}
data: {mesh: "defaultConfig: {proxyMetadata: {ISTIO_META_DNS_CAPTURE: 'true', ISTIO_META_DNS_AUTO_ALLOCATE: 'true'}}"}
"""


async def test_mesh_config_is_that_of_the_default_revision(clusters: TwoClusters) -> None:
    """Release note 54518, for `analyze`."""
    words = ("-o", "json", "--analyzer", "serviceentry.Analyzer")
    for plain in definitions():
        clusters.first.put(plain)
    put(clusters.first, ENTRY, CAPTURE)
    assert codes(await clusters.analyze(*words)) == [("IST0134", "a")]
    assert codes(await clusters.analyze(*words, "--revision", "b")) == []
    tag = yaml.safe_load(INJECTOR.format("-tag", BY_SERVICE))
    tag["metadata"]["labels"] = {"istio.io/tag": "default", "istio.io/rev": "b"}
    clusters.first.put(tag)
    assert codes(await clusters.analyze(*words)) == []


ROUTE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{route: [{destination: {host: web, subset: v2}}]}]}
"""
RULE = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec: {host: web, subsets: [{name: SUBSET, labels: {}}]}
"""


async def test_files_are_checked_as_if_they_were_applied(clusters: TwoClusters, tmp_path: pathlib.Path) -> None:
    for plain in definitions():
        clusters.first.put(plain)
    put(clusters.first, service("{name: http, port: 80}"), RULE.replace("SUBSET", "v1"), INJECTED, pod())
    path = tmp_path / "route.yaml"
    path.write_text(ROUTE)
    words = (str(path), "-o", "json")
    alone = json.loads((await clusters.analyze(*words)).stdout)
    assert [f["code"] for f in alone] == ["destination-not-found"]
    together = json.loads((await clusters.analyze(*words, "--use-kube=true")).stdout)
    found_in = {f["code"]: f.get("file", "") for f in together}
    assert found_in["subset-not-found"] == str(path)
    assert found_in["proxy-missing"] == ""
    path.write_text(f"{ROUTE}---{RULE.replace('SUBSET', 'v2')}")  # replaces the object of the cluster
    result = await clusters.analyze(str(path), "-k", "true")
    assert "subset-not-found" not in result.stdout
    assert "Checked 2 objects in 1 file together with " in result.stdout.splitlines()[-1]


async def test_kinds_that_serve_several_versions_are_read_once(clusters: TwoClusters, tmp_path: pathlib.Path) -> None:
    for plain in definitions():
        clusters.first.put(plain)
    put(clusters.first, RULE)
    (tmp_path / "route.yaml").write_text(ROUTE)
    before = len(clusters.first.requests)
    await clusters.analyze(str(tmp_path / "route.yaml"), "--use-kube=true")
    lists = [info for info in clusters.first.requests[before:] if info.resource.kind == "DestinationRule"]
    assert [(info.verb, info.version) for info in lists] == [("list", "v1")]


async def test_files_with_an_unreachable_cluster_are_an_error(clusters: TwoClusters, tmp_path: pathlib.Path) -> None:
    (tmp_path / "route.yaml").write_text(ROUTE)
    await clusters.first.stop()
    assert (await clusters.analyze(str(tmp_path / "route.yaml"), "--use-kube=true")).exit_code == 1


async def test_installed_cluster_has_no_findings(clusters: TwoClusters) -> None:
    for flags in ((), ("-r", "blue", "-s", "values.defaultRevision=")):
        manifest = await asyncio.to_thread(CliRunner().invoke, pilotctl, ["manifest", "generate", *flags])
        assert manifest.exit_code == 0
        clusters.first.apply(manifest.stdout)
    result = await clusters.analyze("-o", "json")
    assert json.loads(result.stdout) == []


@pytest.mark.parametrize(
    ("words", "code"),
    [((), "waypoint-is-not-ready"), (("--analyzer", "conditions.ConditionAnalyzer"), "negative-condition")],
)
async def test_a_condition_that_the_control_plane_reports_is_listed_once(
    clusters: TwoClusters, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: str
) -> None:
    message = 'waypoint "shop/w" is not ready'
    ref = {"kind": "Service", "namespace": "shop", "name": "cart"}
    finding = {"severity": "warning", "code": "waypoint-is-not-ready", "message": message, **ref}
    monkeypatch.setattr(PageClient, "get", lambda *_, **__: [finding])
    condition = {"type": "istio.io/WaypointBound", "status": "False", "reason": "WaypointIsNotReady"}
    meta = {"name": "cart", "namespace": "shop"}
    status = {"conditions": [condition | {"message": message}]}
    clusters.first.put({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {}, "status": status})
    result = await clusters.analyze("-o", "json", *words)
    assert [(one["code"], one["name"]) for one in json.loads(result.stdout)] == [(code, "cart")], result.output

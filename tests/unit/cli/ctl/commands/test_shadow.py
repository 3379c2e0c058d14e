"""pilotctl shadow: the replicas of the reference, and the exit status."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner, Result

from pilot.cli.ctl.commands.shadow import FOUND
from pilot.cli.ctl.html_page import build_page
from pilot.cli.ctl.output import TextTable
from pilot.cli.pilotctl import pilotctl
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.control_planes.secure_plane import running
from testing.kube.installations import state_of
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
            self.put_pod(pod, {})
            self.cluster.forwards.ports["istio-system", pod["name"], 15014] = ("127.0.0.1", replica.port or 0)

    def put_pod(self, metadata: dict[str, Any], environ: dict[str, str]) -> None:
        """Add or replace a Pod of istiod. `environ` is the environment of its container."""
        spec = {
            "containers": [
                {"name": "istio-proxy", "env": [{"name": "REVISION", "value": "proxy"}]},
                {"name": "discovery", "env": [{"name": name, "value": value} for name, value in environ.items()]},
            ]
        }
        self.cluster.put(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}
        )

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


async def test_the_report_includes_what_an_installation_would_change(
    reference: Reference, tmp_path: pathlib.Path
) -> None:
    reference.cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}})
    file = tmp_path / "operator.yaml"
    file.write_text(yaml.safe_dump({"kind": "IstioOperator", "spec": {"profile": "minimal"}}))
    before = state_of(reference.cluster)
    words = ("-f", str(file), "--set", "revision=canary")
    text = await run(reference, tmp_path, *words)
    assert text.exception is None, text.output
    rows = [line.split() for line in text.stdout.splitlines()]
    assert ["Deployment", "istio-system/istiod-canary", "created"] in rows
    report = json.loads((await run(reference, tmp_path, *words, "-o", "json")).stdout)
    assert {"object": "Deployment istio-system/istiod-canary", "paths": []} in report["installation"]
    assert state_of(reference.cluster) == before


@pytest.mark.parametrize(
    ("words", "environ", "name"),
    [
        ((), {}, "istio"),
        ((), {"REVISION": "canary", "KUBECONFIG": "/var/run/secrets/remote/config"}, "istio-canary"),
        (("-r", "default"), {"REVISION": "canary"}, "istio"),
        (("-r", "canary"), {"REVISION": "default"}, "istio-canary"),
        (("--environment", "REVISION=default"), {"REVISION": "canary"}, "istio"),
    ],
)
async def test_the_revision_selects_the_mesh_config(
    reference: Reference, tmp_path: pathlib.Path, words: tuple[str, ...], environ: dict[str, str], name: str
) -> None:
    reference.put_pod({"name": "istiod-0", "namespace": "istio-system", "labels": LABELS}, environ)
    for one in ("istio", "istio-canary"):
        meta = {"name": one, "namespace": "istio-system"}
        reference.cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mesh": "{}"}})
    assert (await run(reference, tmp_path, *words)).exception is None
    selectors = [one.query.get("fieldSelector", "") for one in reference.cluster.requests]
    assert [text for text in selectors if text.startswith("metadata.name=istio")] == [f"metadata.name={name}"]


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


async def test_the_report_is_written_as_a_page(reference: Reference, tmp_path: pathlib.Path) -> None:
    page = tmp_path / "shadow.html"
    result = await run(reference, tmp_path, "--page", str(page))
    assert result.exception is None, result.output
    text = page.read_text()
    assert "<td>unexplained</td>" in text
    assert "lds surplus" in text
    assert 'http-equiv="refresh"' not in text
    result = await run(reference, tmp_path, "--page", str(tmp_path / "none" / "shadow.html"))
    assert "shadow.html: No such file or directory" in str(result.exception)


def test_a_page_shows_names_as_text_and_reloads_itself() -> None:
    page = build_page("T", ["<script>", TextTable(("A",), [("<b>",)])], 60, 0)
    assert "<p>&lt;script&gt;</p>" in page
    assert "<td>&lt;b&gt;</td>" in page
    assert '<meta http-equiv="refresh" content="60">' in page


async def test_a_service_that_does_not_exist_is_named(reference: Reference, tmp_path: pathlib.Path) -> None:
    result = await run(reference, tmp_path, "--reference", "istiod-old.mesh")
    assert "there is no Service istiod-old in the namespace mesh; --reference selects" in str(result.exception)


def sidecar(name: str, controller: str) -> dict[str, Any]:
    """Return a Pod of a workload with an injected sidecar."""
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "INSTANCE_IP": "status.podIP"}
    fields |= {"SERVICE_ACCOUNT": "spec.serviceAccountName"}
    env = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    env += [{"name": "ISTIO_META_CLUSTER_ID", "value": "Kubernetes"}]
    args = ["proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": controller, "uid": "u", "controller": True}
    labels = {"app": "web"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": labels, "ownerReferences": [owner]},
        "spec": {"serviceAccountName": "web", "containers": [{"name": "istio-proxy", "args": args, "env": env}]},
        "status": {"phase": "Running", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}]},
    }


MESH = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.0.0.1, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{timeout: 5s, route: [{destination: {host: web}}]}]}
"""


async def compare_as_proxies(
    folder: pathlib.Path,
    mesh: str,
    *pods: dict[str, Any],
    reference: str = MESH,
    environ: dict[str, str] | None = None,
) -> tuple[Result, ApiServer]:
    """Compare with a control plane whose debug pages are closed and that has the objects of `reference`."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web", "namespace": "shop"}}
    (folder / "config").mkdir()
    (folder / "config" / "mesh.yaml").write_text("\n---\n".join([reference, *(yaml.safe_dump(pod) for pod in pods)]))
    cluster = ApiServer()
    await cluster.start()
    async with running(folder, environ) as env:
        data = {"root-cert.pem": env.root.decode()}
        meta = {"name": "istio-ca-root-cert", "namespace": "istio-system"}
        root = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        for plain in (*definitions(), account, root, *yaml.safe_load_all(mesh), *pods):
            cluster.put(plain)
        kubeconfig = str(write_kubeconfig(cluster, folder / "kubeconfig"))
        words = ["shadow", "-c", kubeconfig, "-o", "json", "--as-proxies", "--reference", f"127.0.0.1:{env.port}"]
        words += [f"--environment={name}={value}" for name, value in (environ or {}).items()]
        result = await asyncio.to_thread(CliRunner().invoke, pilotctl, words, standalone_mode=False)
    await cluster.stop()
    return result, cluster


async def test_one_proxy_of_each_workload_is_compared_over_xds(tmp_path: pathlib.Path) -> None:
    pods = [sidecar("web-1", "web"), sidecar("web-2", "web"), sidecar("api-1", "api")]
    result, cluster = await compare_as_proxies(tmp_path, MESH, *pods)
    assert result.exception is None, result.output
    report = json.loads(result.stdout)
    assert (report["proxies"], report["pods"], report["causes"], report["rejected"]) == (2, 3, [], {})
    assert report["resources"] == report["equal"] > 10
    others = {(one.verb, one.name, one.subresource) for one in cluster.requests if one.verb not in ("get", "list")}
    assert others == {("create", "web", "token")}


async def test_a_difference_of_what_a_workload_receives_over_xds_is_attributed(tmp_path: pathlib.Path) -> None:
    result, _ = await compare_as_proxies(tmp_path, MESH.replace("timeout: 5s", "timeout: 6s"), sidecar("web-1", "web"))
    (cause,) = json.loads(result.stdout)["causes"]
    assert (cause["object"]["name"], cause["proxies"], cause["example"]["pyistiod"]) == ("web", 1, "6s")


def ztunnel(name: str, controller: str) -> dict[str, Any]:
    """Return a Pod of a DaemonSet of ztunnels."""
    pod = sidecar(name, controller)
    pod["spec"]["containers"][0]["args"] = ["proxy", "ztunnel"]
    pod["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    return pod


@pytest.mark.parametrize(("action", "expected"), [("ALLOW", []), ("DENY", ["callers"])])
async def test_one_ztunnel_is_compared_over_xds(tmp_path: pathlib.Path, action: str, expected: list[str]) -> None:
    policy = f"""
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: callers, namespace: shop}}
spec: {{action: {action}, rules: [{{from: [{{source: {{namespaces: [shop]}}}}]}}]}}
"""
    environ = {"PILOT_ENABLE_AMBIENT": "true"}
    own, reference = MESH + policy, MESH + policy.replace(action, "ALLOW")
    result, _ = await compare_as_proxies(
        tmp_path, own, ztunnel("zt-1", "ztunnel"), ztunnel("zt-2", "ztunnel"), reference=reference, environ=environ
    )
    assert result.exception is None, result.output
    report = json.loads(result.stdout)
    assert (report["proxies"], report["pods"], report["rejected"]) == (1, 2, {})
    assert report["resources"] >= 3
    assert [cause["object"]["name"] for cause in report["causes"]] == expected


async def test_a_workload_that_the_reference_refuses_is_named(tmp_path: pathlib.Path) -> None:
    foreign = sidecar("web-1", "web")
    foreign["spec"]["containers"][0]["env"][3] = {"name": "SERVICE_ACCOUNT", "value": "other"}
    result, _ = await compare_as_proxies(tmp_path, MESH, foreign, sidecar("api-1", "api"))
    report = json.loads(result.stdout)
    assert (report["proxies"], list(report["rejected"])) == (1, ["web-1.shop"])


async def test_closed_debug_pages_are_an_error_that_names_the_other_way(tmp_path: pathlib.Path) -> None:
    closed = TestServer(web.Application())
    await closed.start_server()
    cluster = ApiServer()
    await cluster.start()
    kubeconfig = str(write_kubeconfig(cluster, tmp_path / "kubeconfig"))
    words = ["shadow", "-c", kubeconfig, "--reference", f"http://127.0.0.1:{closed.port}"]
    result = await asyncio.to_thread(CliRunner().invoke, pilotctl, words, standalone_mode=False)
    await closed.close()
    await cluster.stop()
    assert "serves no debug pages; --as-proxies" in str(result.exception)

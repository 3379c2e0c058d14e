"""Webhooks of a control plane: native sidecars, users, ProxyConfigs, templates and the port certificate."""

from __future__ import annotations

import asyncio
import json
import pathlib
import ssl
from collections import Counter
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from pilot.bootstrap.webhooks import WebhookParts
from pilot.config.kinds.kubernetes import CONFIG_MAP
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.object import RegistryKey
from pilot.ingest.batch import Commit
from pilot.lib.flags import FlagError
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from pilot.settings.parse import load
from pilot.xds.net.listen_address import Address
from pilot.xds.tls.context import CertificatePair, TlsRules, make_context
from testing.control_planes.secure_plane import issue
from testing.kube.webhooks import pod, review
from testing.mesh.world import rows_of
from testing.security.certificates import root
from webhook.inject.proxy_config import ProxyConfigObject


class Hooks:
    """The webhooks of a control plane, with tables that the test fills."""

    def __init__(self, environ: dict[str, str] | None = None, folder: str = "/nowhere", **flags: str) -> None:
        self.settings = load(
            [f"--{name}={value}" for name, value in {"injectionDir": folder, **flags}.items()], environ or {}
        ).settings
        self.db, self.mesh, self.certificate, self.calls = (
            Mesh(self.settings.mesh),
            MeshConfig(),
            SimpleNamespace(context=None),
            list[str](),
        )
        self.certificate.start, self.certificate.stop = self._recorder("start"), self._recorder("stop")
        certificate: Any = self.certificate
        self.part = WebhookParts(self.settings, lambda: self.mesh, self.db, Metrics(), certificate)

    def _recorder(self, line: str) -> Any:
        async def work() -> None:
            self.calls.append(line)

        return work

    def put(self, *objects: dict[str, Any], cluster: str = "Kubernetes") -> Commit:
        """Add objects to the tables, and return the commit."""
        rows = rows_of(objects, cluster)
        self.db.commit([(self.db.tables[table], key, row) for (table, key), row in rows.items()])
        return Commit([], [(table, key, row) for (table, key), row in rows.items()], 1, 0.0, 0.0, Counter(), 0.0)

    async def start(self) -> None:
        for part in self.part.parts():
            await part.start()

    async def stop(self) -> None:
        for part in self.part.parts():
            await part.stop()

    @property
    def tag(self) -> str | None:
        """The image tag of injected pods."""
        config = self.part.injector.config if self.part.injector is not None else None
        return None if config is None else str(config.value("global", "tag"))


def make_object(api: str, kind: str, name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("metadata", {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **more}


def node(name: str, version: str) -> dict[str, Any]:
    return make_object("v1", "Node", name, status={"nodeInfo": {"kubeletVersion": version}})


def injector_map(tag: str, name: str = "istio-sidecar-injector", namespace: str = "istio-system") -> dict[str, Any]:
    config, values = texts(tag)
    return make_object("v1", "ConfigMap", name, namespace, data={"config": config, "values": values})


def texts(tag: str) -> tuple[str, str]:
    """Return the keys `config` and `values` with a template that compiles quickly."""
    templates = {"sidecar": "metadata: {labels: {a: b}}", "gateway": "spec: {}"}
    return json.dumps({"policy": "enabled", "defaultTemplates": ["sidecar"], "templates": templates}), json.dumps(
        {"global": {"tag": tag}}
    )


# -- injection context -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "node_name", "native"),
    [
        ({}, "", False),
        ({"a": "v1.33.0"}, "", True),
        ({"a": "v1.32.9"}, "", False),
        ({"a": "v1.33.0", "b": "v1.32.9"}, "", False),
        ({"a": "v1.33.0", "b": "v1.32.9"}, "a", True),
        ({"a": "v1.33.0", "b": "v1.32.9"}, "b", False),
        ({"a": "v1.33.0", "b": "1.34"}, "c", True),
        ({"a": "v2.0.1-gke.7"}, "a", True),
        ({"a": "unknown"}, "a", False),
    ],
)
def test_native_sidecars_depend_on_the_kubelet_version(versions: dict[str, str], node_name: str, native: bool) -> None:
    hooks = Hooks()
    hooks.put(*(node(name, version) for name, version in versions.items()))
    hooks.put(node("far", "v1.20.0"), cluster="west")
    assert hooks.part.context.native("Kubernetes", node_name) is native
    assert hooks.part.context.native("west", "") is False


@pytest.mark.parametrize(("value", "native"), [("true", True), ("TRUE", True), ("false", False)])
def test_native_sidecars_setting_wins_over_node_versions(value: str, native: bool) -> None:
    hooks = Hooks({"ENABLE_NATIVE_SIDECARS": value})
    hooks.put(node("a", "v1.32.0" if native else "v1.35.0"))
    assert hooks.part.context.native("Kubernetes", "a") is native


def test_invalid_native_sidecars_setting_is_rejected() -> None:
    with pytest.raises(FlagError, match=r"^ENABLE_NATIVE_SIDECARS: 'maybe' is not one of true, false, auto$"):
        Hooks({"ENABLE_NATIVE_SIDECARS": "Maybe"})


@pytest.mark.parametrize(
    ("platform", "ids", "resets"), [("", (1337, 1337), False), ("openshift", (1000659999, 1000659999), True)]
)
def test_openshift_proxies_run_as_namespace_users(platform: str, ids: tuple[int, int], resets: bool) -> None:
    hooks = Hooks({"PLATFORM": platform})
    hooks.put(
        make_object(
            "v1", "Namespace", "shop", metadata={"annotations": {"openshift.io/sa.scc.uid-range": "1000650000/10000"}}
        )
    )
    assert hooks.part.context.proxy_ids("shop") == ids
    assert hooks.part.context.proxy_ids("bank") == (1337, 1337)
    assert hooks.part.context.resets_users is resets


async def test_proxy_configs_are_listed_oldest_first() -> None:
    hooks, api = Hooks(), "networking.istio.io/v1beta1"
    young = make_object(
        api,
        "ProxyConfig",
        "a",
        "shop",
        metadata={"creationTimestamp": "2025-02-01T00:00:00Z"},
        spec={
            "selector": {"matchLabels": {"app": "web"}},
            "concurrency": 3,
            "environmentVariables": {"A": "b"},
            "image": {"imageType": "debug"},
        },
    )
    old = make_object(api, "ProxyConfig", "b", "bank", metadata={"creationTimestamp": "2025-01-01T00:00:00Z"}, spec={})
    hooks.part.on_commit(hooks.put(young, old))
    later = make_object(
        api, "ProxyConfig", "c", "shop", metadata={"creationTimestamp": "2025-03-01T00:00:00Z"}, spec=young["spec"]
    )
    web = ProxyConfigObject("shop", "2025-02-01T00:00:00Z", {"app": "web"}, 3, {"A": "b"}, "debug")
    for _ in range(2):
        hooks.part.on_commit(hooks.put(later))
        assert await hooks.part.proxy_configs("shop", {"app": "web", "tier": "1"}) == (web,)
        assert await hooks.part.proxy_configs("shop", {"app": "api"}) == ()
        assert await hooks.part.proxy_configs("bank", {}) == (ProxyConfigObject("bank", "2025-01-01T00:00:00Z"),)


async def test_proxy_configs_of_the_root_namespace_apply_everywhere() -> None:
    hooks, api = Hooks(), "networking.istio.io/v1beta1"
    hooks.put(make_object(api, "ProxyConfig", "a", "istio-system", spec={"concurrency": 1}))
    hooks.put(*(make_object(api, "ProxyConfig", f"p{n}", "shop", spec={"concurrency": 2}) for n in range(50)))
    assert [o.concurrency for o in await hooks.part.proxy_configs("shop", {})] == [1, 2]
    assert [o.concurrency for o in await hooks.part.proxy_configs("istio-system", {})] == [1]


async def test_changed_proxy_configs_and_nodes_apply_to_the_next_pod() -> None:
    hooks, api = Hooks(), "networking.istio.io/v1beta1"
    for concurrency, version, native in ((1, "v1.32.0", False), (2, "v1.33.0", True)):
        hooks.part.on_commit(hooks.put(make_object(api, "ProxyConfig", "a", "shop", spec={"concurrency": concurrency})))
        hooks.part.on_commit(hooks.put(node("a", version)))
        assert [o.concurrency for o in await hooks.part.proxy_configs("shop", {})] == [concurrency]
        assert hooks.part.context.native("Kubernetes", "a") is native


def test_settings_reach_the_injector() -> None:
    context = Hooks({"REVISION": "blue", "COMPLIANCE_POLICY": "fips-140-2"}).part.context
    assert (context.revision, context.compliance_policy) == ("blue", "fips-140-2")
    hooks = Hooks()
    assert hooks.part.context.mesh() is hooks.mesh


# -- injector configuration --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "name", "namespace"),
    [
        ({}, "istio-sidecar-injector", "istio-system"),
        ({"REVISION": "default", "POD_NAMESPACE": "mesh"}, "istio-sidecar-injector", "mesh"),
        ({"REVISION": "blue"}, "istio-sidecar-injector-blue", "istio-system"),
    ],
)
async def test_config_map_of_the_revision_is_loaded_and_watched(
    environ: dict[str, str], name: str, namespace: str
) -> None:
    hooks = Hooks(environ)
    hooks.put(injector_map("1", name, namespace))
    assert (hooks.tag, hooks.part.templates) == (None, None)
    await hooks.start()
    assert hooks.tag == "1"
    assert hooks.part.templates == {"sidecar": "metadata: {labels: {a: b}}", "gateway": "spec: {}"}
    hooks.part.on_commit(hooks.put(injector_map("2", "other", namespace)))
    hooks.part.on_commit(hooks.put(injector_map("3", name, "shop")))
    hooks.part.on_commit(hooks.put(injector_map("4", name, namespace), cluster="west"))
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "take the injector's ConfigMap"]
    hooks.part.on_commit(hooks.put(injector_map("5", name, namespace)))
    await hooks.stop()
    assert hooks.tag == "5", "pending changes are applied at stop"
    assert hooks.calls == ["start", "stop"]


@pytest.mark.parametrize("missing", ["config", "values"])
async def test_incomplete_config_map_is_ignored(missing: str) -> None:
    hooks, config_map = Hooks(), injector_map("1")
    del config_map["data"][missing]
    hooks.put(config_map)
    await hooks.start()
    assert hooks.tag is None
    await hooks.stop()


async def test_injection_folder_wins_over_the_config_map(tmp_path: pathlib.Path) -> None:
    for name, text in zip(("config", "values"), texts("file"), strict=True):
        (tmp_path / name).write_text(text)
    hooks = Hooks(folder=str(tmp_path))
    hooks.put(injector_map("map"))
    await hooks.start()
    assert hooks.tag == "file"
    hooks.part.on_commit(hooks.put(injector_map("map 2")))
    await hooks.stop()
    assert hooks.tag == "file"


async def test_disabled_injection_loads_no_configuration() -> None:
    hooks = Hooks({"INJECT_ENABLED": "false"})
    hooks.put(injector_map("1"))
    await hooks.start()
    assert (hooks.part.injector, hooks.part.templates) == (None, None)
    await hooks.stop()


def test_certificate_exists_only_with_a_webhooks_port() -> None:
    assert [part.name for part in Hooks(httpsAddr="").part.parts()] == ["the injector's configuration"]
    assert [part.name for part in Hooks().part.parts()] == [
        "the webhooks' certificate",
        "the injector's configuration",
    ]


# -- webhook port ------------------------------------------------------------------------------------------------------


def context(number: int) -> ssl.SSLContext:
    signer = root(number)
    credential = issue(signer, "istiod.istio-system.svc", now=signer.certificate.not_valid_before_utc)
    return make_context([CertificatePair(credential.chain, credential.key)], None, TlsRules(), "http/1.1")


def worker_processes() -> list[str]:
    """Return the IDs of the processes that this one has started for workers."""
    children = pathlib.Path("/proc/self/task").glob("*/children")
    ids = [number for file in children for number in file.read_text().split()]
    return [number for number in ids if b"pilot.lib.workers" in pathlib.Path(f"/proc/{number}/cmdline").read_bytes()]


async def until_workers_have_ended() -> None:
    async with asyncio.timeout(20):
        while worker_processes():
            await asyncio.sleep(0.01)


async def issuer(port: int) -> str:
    """Return the issuer of the certificate that the port presents."""
    tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls_context.check_hostname, tls_context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls_context, server_hostname="istiod.istio-system.svc"
    )
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(certificate).issuer.rfc4514_string()


async def test_renewed_certificate_is_used_without_closing_the_port() -> None:
    hooks = Hooks()
    hooks.certificate.context = context(1)
    port = hooks.part.build_port(Address("127.0.0.1", 0), lambda: True)
    await port.start()
    try:
        assert await issuer(port.number) == "O=domain-1"
        hooks.certificate.context = context(2)
        assert await issuer(port.number) == "O=domain-2"
        hooks.certificate.context = None
        assert await issuer(port.number) == "O=domain-1", "the initial certificate remains"
    finally:
        await port.stop()


@pytest.mark.parametrize("ready", [True, False])
async def test_port_serves_reviews_and_readiness(ready: bool) -> None:
    hooks = Hooks()
    hooks.put(injector_map("1"))
    await hooks.start()
    hooks.certificate.context = context(1)
    port = hooks.part.build_port(Address("127.0.0.1", 0), lambda: ready)
    await port.start()
    url = f"https://127.0.0.1:{port.number}"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        async with session.get(f"{url}/ready") as response:
            assert response.status == (200 if ready else 503)
        async with session.post(f"{url}/inject", json=review(pod())) as response:
            assert (await response.json())["response"]["allowed"] is True
    await port.stop()
    assert worker_processes()
    await hooks.stop()
    await until_workers_have_ended()


async def test_port_without_a_certificate_does_not_listen() -> None:
    port = Hooks().part.build_port(Address("127.0.0.1", 0), lambda: True)
    await port.start()
    assert port.number == 0
    await port.stop()


def test_injector_config_map_is_read_from_the_local_cluster() -> None:
    hooks = Hooks({"CLUSTER_ID": "east"})
    hooks.put(injector_map("1"), cluster="east")
    assert CONFIG_MAP.table(hooks.db).peek(RegistryKey("east", "istio-system", "istio-sidecar-injector")) is not None
    asyncio.run(hooks.start())
    assert hooks.tag == "1"
    asyncio.run(hooks.stop())


@pytest.mark.parametrize("environ", [{}, {"INJECT_ENABLED": "false"}])
async def test_control_plane_without_an_injector_configuration_starts_no_workers(environ: dict[str, str]) -> None:
    hooks = Hooks(environ)
    await hooks.start()
    await asyncio.sleep(0)
    await until_workers_have_ended()
    await hooks.stop()

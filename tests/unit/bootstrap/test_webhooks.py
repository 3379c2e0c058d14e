"""What webhooks are answered with by the settings and the tables: native sidecars, users, ProxyConfigs, templates, and the port's certificate."""

from __future__ import annotations

import asyncio
import json
import pathlib
import ssl
import threading
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
from pilot.lib.metrics import Metrics
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
    """The webhooks of a control plane with tables that the test fills."""

    def __init__(self, environ: dict[str, str] | None = None, folder: str = "/nowhere", **flags: str) -> None:
        self.settings = load(
            [f"--{name}={value}" for name, value in {"injectionDir": folder, **flags}.items()], environ or {}
        ).settings
        self.db, self.mesh, self.certificate, self.done = (
            Mesh(self.settings.mesh),
            MeshConfig(),
            SimpleNamespace(context=None),
            list[str](),
        )
        self.certificate.start, self.certificate.stop = self._does("start"), self._does("stop")
        certificate: Any = self.certificate
        self.part = WebhookParts(self.settings, lambda: self.mesh, self.db, Metrics(), certificate)

    def _does(self, what: str) -> Any:
        async def work() -> None:
            self.done.append(what)

        return work

    def put(self, *objects: dict[str, Any], cluster: str = "Kubernetes") -> Commit:
        """Has objects in the tables; returns the commit that says so."""
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
        """The images that pods are injected with."""
        config = self.part.injector.config if self.part.injector is not None else None
        return None if config is None else str(config.value("global", "tag"))


def plain(api: str, kind: str, name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("metadata", {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **more}


def node(name: str, version: str) -> dict[str, Any]:
    return plain("v1", "Node", name, status={"nodeInfo": {"kubeletVersion": version}})


def injector_map(tag: str, name: str = "istio-sidecar-injector", namespace: str = "istio-system") -> dict[str, Any]:
    config, values = texts(tag)
    return plain("v1", "ConfigMap", name, namespace, data={"config": config, "values": values})


def texts(tag: str) -> tuple[str, str]:
    """The keys `config` and `values` with a template that is quick to compile."""
    templates = {"sidecar": "metadata: {labels: {a: b}}", "gateway": "spec: {}"}
    return json.dumps({"policy": "enabled", "defaultTemplates": ["sidecar"], "templates": templates}), json.dumps(
        {"global": {"tag": tag}}
    )


# -- what an injection asks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "on", "native"),
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
def test_proxies_are_native_where_the_nodes_can_have_it(versions: dict[str, str], on: str, native: bool) -> None:
    it = Hooks()
    it.put(*(node(name, version) for name, version in versions.items()))
    it.put(node("far", "v1.20.0"), cluster="west")
    assert it.part.context.native("Kubernetes", on) is native
    assert it.part.context.native("west", "") is False


@pytest.mark.parametrize(("said", "native"), [("true", True), ("TRUE", True), ("false", False)])
def test_the_setting_of_native_sidecars_comes_before_what_nodes_can(said: str, native: bool) -> None:
    it = Hooks({"ENABLE_NATIVE_SIDECARS": said})
    it.put(node("a", "v1.32.0" if native else "v1.35.0"))
    assert it.part.context.native("Kubernetes", "a") is native


def test_a_setting_of_native_sidecars_that_makes_no_sense_is_told() -> None:
    with pytest.raises(FlagError, match=r"^ENABLE_NATIVE_SIDECARS 'maybe' is not one of true, false, auto$"):
        Hooks({"ENABLE_NATIVE_SIDECARS": "Maybe"})


@pytest.mark.parametrize(
    ("platform", "ids", "resets"), [("", (1337, 1337), False), ("openshift", (1000659999, 1000659999), True)]
)
def test_on_openshift_proxies_run_as_the_users_of_their_namespace(
    platform: str, ids: tuple[int, int], resets: bool
) -> None:
    it = Hooks({"PLATFORM": platform})
    it.put(
        plain(
            "v1", "Namespace", "shop", metadata={"annotations": {"openshift.io/sa.scc.uid-range": "1000650000/10000"}}
        )
    )
    assert it.part.context.proxy_ids("shop") == ids
    assert it.part.context.proxy_ids("bank") == (1337, 1337)
    assert it.part.context.resets_users is resets


def test_proxy_configs_come_oldest_first_with_what_they_say() -> None:
    it, api = Hooks(), "networking.istio.io/v1beta1"
    young = plain(
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
    old = plain(api, "ProxyConfig", "b", "bank", metadata={"creationTimestamp": "2025-01-01T00:00:00Z"}, spec={})
    it.put(young, old)
    assert list(it.part.context.proxy_configs()) == [
        ProxyConfigObject("bank", "2025-01-01T00:00:00Z"),
        ProxyConfigObject("shop", "2025-02-01T00:00:00Z", {"app": "web"}, 3, {"A": "b"}, "debug"),
    ]


def test_what_settings_say_reaches_the_injector() -> None:
    around = Hooks({"REVISION": "blue", "COMPLIANCE_POLICY": "fips-140-2"}).part.context
    assert (around.revision, around.compliance_policy) == ("blue", "fips-140-2")
    it = Hooks()
    assert it.part.context.mesh() is it.mesh


# -- where its configuration comes from --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "name", "namespace"),
    [
        ({}, "istio-sidecar-injector", "istio-system"),
        ({"REVISION": "default", "POD_NAMESPACE": "mesh"}, "istio-sidecar-injector", "mesh"),
        ({"REVISION": "blue"}, "istio-sidecar-injector-blue", "istio-system"),
    ],
)
async def test_the_config_map_of_the_revision_is_taken_and_followed(
    environ: dict[str, str], name: str, namespace: str
) -> None:
    it = Hooks(environ)
    it.put(injector_map("1", name, namespace))
    assert (it.tag, it.part.templates) == (None, None)
    await it.start()
    assert it.tag == "1"
    assert it.part.templates == {"sidecar": "metadata: {labels: {a: b}}", "gateway": "spec: {}"}
    it.part.on_commit(it.put(injector_map("2", "other", namespace)))
    it.part.on_commit(it.put(injector_map("3", name, "shop")))
    it.part.on_commit(it.put(injector_map("4", name, namespace), cluster="west"))
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "take the injector's ConfigMap"]
    it.part.on_commit(it.put(injector_map("5", name, namespace)))
    await it.stop()
    assert it.tag == "5", "it is taken before the end"
    assert it.done == ["start", "stop"]


@pytest.mark.parametrize("missing", ["config", "values"])
async def test_a_map_without_one_of_its_keys_is_not_taken(missing: str) -> None:
    it, made = Hooks(), injector_map("1")
    del made["data"][missing]
    it.put(made)
    await it.start()
    assert it.tag is None
    await it.stop()


async def test_a_folder_comes_before_the_config_map(tmp_path: pathlib.Path) -> None:
    for name, text in zip(("config", "values"), texts("file"), strict=True):
        (tmp_path / name).write_text(text)
    it = Hooks(folder=str(tmp_path))
    it.put(injector_map("map"))
    await it.start()
    assert it.tag == "file"
    it.part.on_commit(it.put(injector_map("map 2")))
    await it.stop()
    assert it.tag == "file"


async def test_without_injection_nothing_is_taken() -> None:
    it = Hooks({"INJECT_ENABLED": "false"})
    it.put(injector_map("1"))
    await it.start()
    assert (it.part.injector, it.part.templates) == (None, None)
    await it.stop()


def test_without_a_port_of_its_own_there_is_no_certificate() -> None:
    assert [part.name for part in Hooks(httpsAddr="").part.parts()] == ["the injector's configuration"]
    assert [part.name for part in Hooks().part.parts()] == [
        "the webhooks' certificate",
        "the injector's configuration",
    ]


# -- the port ----------------------------------------------------------------------------------------------------------


def context(number: int) -> ssl.SSLContext:
    signer = root(number)
    made = issue(signer, "istiod.istio-system.svc", now=signer.certificate.not_valid_before_utc)
    return make_context([CertificatePair(made.chain, made.key)], b"", TlsRules(), "http/1.1")


async def issuer(port: int) -> str:
    """The subject of whoever has issued the certificate that the port shows now."""
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    accepting.check_hostname, accepting.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=accepting, server_hostname="istiod.istio-system.svc"
    )
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(found).issuer.rfc4514_string()


async def test_another_certificate_is_shown_without_closing_the_port() -> None:
    it = Hooks()
    it.certificate.context = context(1)
    port = it.part.build_port(Address("127.0.0.1", 0), lambda: True)
    await port.start()
    try:
        assert await issuer(port.number) == "O=domain-1"
        it.certificate.context = context(2)
        assert await issuer(port.number) == "O=domain-2"
        it.certificate.context = None
        assert await issuer(port.number) == "O=domain-1", "that of the start is still there"
    finally:
        await port.stop()


@pytest.mark.parametrize("ready", [True, False])
async def test_the_port_answers_reviews_and_whether_the_process_is_ready(ready: bool) -> None:
    it = Hooks()
    it.put(injector_map("1"))
    await it.start()
    it.certificate.context = context(1)
    port = it.part.build_port(Address("127.0.0.1", 0), lambda: ready)
    await port.start()
    url = f"https://127.0.0.1:{port.number}"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        async with session.get(f"{url}/ready") as answer:
            assert answer.status == (200 if ready else 503)
        async with session.post(f"{url}/inject", json=review(pod())) as answer:
            assert (await answer.json())["response"]["allowed"] is True
    await port.stop()
    [thread] = [thread for thread in threading.enumerate() if thread.name.startswith("webhook")]
    await it.stop()
    thread.join(10)
    assert not thread.is_alive(), "nothing is answered after the end"


async def test_a_port_without_a_certificate_does_not_listen() -> None:
    port = Hooks().part.build_port(Address("127.0.0.1", 0), lambda: True)
    await port.start()
    assert port.number == 0
    await port.stop()


def test_the_row_of_the_injector_is_of_the_own_cluster() -> None:
    it = Hooks({"CLUSTER_ID": "east"})
    it.put(injector_map("1"), cluster="east")
    assert CONFIG_MAP.table(it.db).peek(RegistryKey("east", "istio-system", "istio-sidecar-injector")) is not None
    asyncio.run(it.start())
    assert it.tag == "1"
    asyncio.run(it.stop())

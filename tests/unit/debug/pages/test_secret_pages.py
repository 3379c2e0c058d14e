"""Secrets on debug pages: names, certificates and sources, but never a key."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from cryptography import x509

from pilot.debug.application import application
from pilot.debug.page_routes import sections
from pilot.lib.xds_types import BY_SHORT_NAME, SECRET
from pilot.settings.process import DebugSettings
from testing.mesh.debug_server import FakeConnection, FakeWatch, sources
from testing.mesh.objects import make, world
from testing.mesh.problems import problems_of
from testing.mesh.world import World
from testing.security.credentials import Authority, edge_router, tls_secret

CA = Authority()
WEB, BROKEN = CA.issue("web.example.com"), CA.issue("broken.example.com")
NAMES = ("kubernetes://web", "kubernetes://web-cacert", "kubernetes://broken")
GATEWAY = make(
    "Gateway",
    "gw",
    "{selector: {istio: ingress}, servers: ["
    "{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.com], tls: {mode: MUTUAL, credentialName: web}}, "
    "{port: {number: 443, name: other, protocol: HTTPS}, hosts: [b.com], tls: {mode: SIMPLE, credentialName: broken}}]}",
    "edge",
)
Client = TestClient[web.Request, web.Application]


@pytest.fixture
def mesh() -> World:
    broken = tls_secret("broken", BROKEN)
    broken["data"]["tls.crt"] = base64.b64encode(WEB.chain).decode()
    return world(tls_secret("web", WEB, ca_crt=CA.pem), broken, GATEWAY)


@pytest.fixture
async def client(mesh: World) -> AsyncIterator[Client]:
    key = mesh.connect(edge_router())
    watches = {BY_SHORT_NAME[name]: FakeWatch() for name in ("cds", "lds", "eds", "rds")} | {SECRET: FakeWatch(NAMES)}
    connection = FakeConnection("edge-0.edge-1", key, edge_router(), subscriptions=watches)
    async with TestClient(
        TestServer(application(sources(mesh.mesh, connection, problems=problems_of(mesh))))
    ) as client:
        yield client


GZIP = b"\x1f\x8b"


async def text_of(client: Client, path: str) -> str:
    async with client.get(path) as response:
        body = await response.read()
        return (gzip.decompress(body) if body.startswith(GZIP) else body).decode(errors="backslashreplace")


def keys() -> Iterator[str]:
    """Return fragments of private keys: PEM, and base64 in one piece or encoded as JSON."""
    for credential in (WEB, BROKEN):
        body = "".join(credential.private_key.decode().splitlines()[1:-1])
        yield from (body[20:60], base64.b64encode(credential.private_key).decode()[60:120])
    yield "PRIVATE KEY"


def assert_no_key(text: str) -> None:
    joined = re.sub(r"\s|\\n", "", text)
    assert not [key for key in keys() if key in text or key.replace(" ", "") in joined]


PAGES = [page.path for pages in sections(DebugSettings()).values() for page in pages]


@pytest.mark.parametrize("path", [*PAGES, "/metrics", "/debug"])
async def test_pages_show_no_private_key(client: Client, path: str) -> None:
    queries = ("", "proxyID=edge-0.edge", "proxyID=edge-0.edge&include_eds", "proxyID=edge-0.edge&types=sds,cds,lds")
    for query in (*queries, *(f"proxyID=edge-0.edge&resource={name}" for name in NAMES)):
        assert_no_key(await text_of(client, f"{path}?seconds=0.01&{query}"))  # profiles take 30 s by default


async def test_config_dump_has_secret_names_and_certificates(client: Client) -> None:
    async with client.get("/debug/config_dump?proxyID=edge-0.edge") as response:
        dumps = (await response.json())["configs"]
    secrets: dict[str, Any] = {
        secret["name"]: secret["secret"]
        for dump in dumps
        if "Secrets" in dump["@type"]
        for secret in dump["dynamicActiveSecrets"]
    }
    assert set(secrets) == {"kubernetes://web", "kubernetes://web-cacert"}
    certificate = secrets["kubernetes://web"]["tlsCertificate"]
    assert base64.b64decode(certificate["privateKey"]["inlineBytes"]) == b"[redacted]"
    chain = x509.load_pem_x509_certificate(base64.b64decode(certificate["certificateChain"]["inlineBytes"]))
    assert (chain.serial_number, chain.not_valid_after_utc) == (
        WEB.certificate.serial_number,
        WEB.certificate.not_valid_after_utc,
    )
    assert (
        base64.b64decode(secrets["kubernetes://web-cacert"]["validationContext"]["trustedCa"]["inlineBytes"]) == CA.pem
    )


async def test_explanation_names_the_secret(client: Client) -> None:
    async with client.get("/debug/explain?proxyID=edge-0.edge&resource=kubernetes://web-cacert") as response:
        (explanation,) = (await response.json())["explanations"]
    assert {"kind": "Secret", "name": "web", "namespace": "edge"}.items() <= next(
        item for item in explanation["objects"] if item["kind"] == "Secret"
    ).items()


def test_problem_of_a_secret_omits_the_key(mesh: World) -> None:
    mesh.connect(edge_router())
    problems = [problem for problem in problems_of(mesh) if problem.code == "credential-unusable"]
    assert [problem.path for problem in problems] == ["spec.servers[1].tls.credentialName"]
    assert "data[tls.key] of Secret edge/broken does not match the certificate in data[tls.crt]" in problems[0].message
    assert_no_key(str(problems))


def test_repr_of_objects_has_no_key(mesh: World) -> None:
    assert set(mesh.secrets(mesh.connect(edge_router()), *NAMES)) == {*NAMES[:2]}
    rows = mesh.rows()
    assert any(table == "Secret" for table, _ in rows)
    assert_no_key(repr(rows))
    nodes = [(repr(node), node.value) for node in mesh.mesh.live_nodes()]
    assert any("KeyPair" in repr(value) for _, value in nodes)
    assert_no_key(repr(nodes))

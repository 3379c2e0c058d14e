"""Keys and tokens appear in no response and no log line. The tests put marked secrets everywhere and search all output."""

from __future__ import annotations

import base64
import contextlib
import logging
import pathlib
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from ca.pem import key_pem
from pilot.controlz.application import application
from pilot.controlz.control import Control
from pilot.debug.page_routes import sections
from pilot.debug.pages.profiles import PREFIX
from pilot.lib.build_info import build_info
from pilot.lib.logging.log import TabbedLine, scope
from pilot.lib.logging.scopes import scopes, set_output_level
from pilot.lib.xds_types import DEBUG, DEBUG_PAGE, SECRET
from testing.clients.secure_client import SecureClient
from testing.control_planes.secure_plane import Running, running
from testing.security.credentials import Authority, data_secret, tls_secret
from testing.security.tokens import token

MARK = "S3cr3tM4rkTh4tNob0dyM4yS33"
ISSUED = Authority().issue("web.example.com")
EDGE = "router~10.0.0.1~edge-0.edge~edge.svc.cluster.local"
GATEWAY = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: edge}
spec:
  selector: {istio: ingress}
  servers:
  - {port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.com], tls: {mode: SIMPLE, credentialName: web}}
"""
COMMON_QUERIES, PROXY_QUERIES = (
    ("", "pretty"),
    (
        "proxyID=edge-0",
        "proxyID=edge-0&types=sds",
        "proxyID=edge-0&include_eds&pretty",
        "proxyID=edge-0&resource=kubernetes://web",
    ),
)


class Marks:
    """Secrets to search for, in plaintext and in base64 at any offset."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def add(self, name: str, secret: bytes) -> None:
        text = secret.decode()
        for line in text.splitlines() if "-----" in text else [text]:
            if len(line) < 16 or "-----" in line:
                continue
            self._texts[line] = name
            for shift in range(3):
                encoded = base64.b64encode(b"-" * shift + line.encode()).decode()
                self._texts[encoded[4 : len(encoded) // 4 * 4 - 4]] = f"{name}, in base64"

    def leaks_in(self, text: str) -> set[str]:
        return {name for secret, name in self._texts.items() if secret in text}


class LogLines(logging.Handler):
    """Collects formatted log lines."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(TabbedLine())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextlib.contextmanager
def log_everything() -> Iterator[LogLines]:
    lines, levels = LogLines(), {state.name: state.output_level for state in scopes()}
    for name in levels:
        set_output_level(name, "debug")
    scope("default").addHandler(lines)
    try:
        yield lines
    finally:
        scope("default").removeHandler(lines)
        for name, level in levels.items():
            set_output_level(name, level)


@contextlib.asynccontextmanager
async def running_with_secrets(folder: pathlib.Path, marks: Marks) -> AsyncIterator[tuple[Running, SecureClient]]:
    """Run a control plane with marked secrets, and a gateway that has received one of them."""
    marks.add("the key of a Secret", ISSUED.private_key)
    marks.add("a text of a Secret", MARK.encode())
    registry = data_secret("pull", {".dockerconfigjson": MARK.encode()}, kind="kubernetes.io/dockerconfigjson")
    objects = [
        tls_secret("web", ISSUED),
        data_secret("other", {"token": MARK.encode(), "key": MARK.encode()}),
        registry,
    ]
    (folder / "config").mkdir()
    (folder / "config" / "all.yaml").write_text("\n---\n".join([*map(yaml.safe_dump, objects), GATEWAY]))
    (folder / "config" / "broken.yaml").write_text(
        yaml.safe_dump(data_secret("worse", {"tls.key": MARK.encode()}, kind="kubernetes.io/tls"))
    )
    async with running(folder, {"SOME_TOKEN": MARK}) as env:
        marks.add("the key of the authority", key_pem(env.signer.key))
        workload_token = token("edge", "edge")
        marks.add("a workload's token", workload_token.encode())
        async with SecureClient(
            env.port, env.root, token=workload_token, variant="sotw", node_id=EDGE, LABELS={"istio": "ingress"}
        ) as gateway:
            await gateway.request("cds")
            await gateway.receive()
            await gateway.request(SECRET, "kubernetes://web")
            response = await gateway.receive()
            assert (
                secret_pb2.Secret.FromString(response.resources[0].value).tls_certificate.private_key.inline_bytes
                == ISSUED.private_key
            )
            yield env, gateway


@pytest.fixture
def marks() -> Marks:
    return Marks()


def test_marks_find_leaks(marks: Marks) -> None:
    marks.add("text", MARK.encode())
    marks.add("key", ISSUED.private_key)
    line = ISSUED.private_key.decode().splitlines()[1]
    assert marks.leaks_in(f"x{MARK}y") == {"text"}
    for around in (b"", b"x", b"xy", b'{"auth":"'):
        assert marks.leaks_in(base64.b64encode(around + MARK.encode() + b"tail").decode()) == {"text, in base64"}
    assert marks.leaks_in(f"a {line} b") == {"key"}
    assert "key, in base64" in marks.leaks_in(base64.b64encode(ISSUED.private_key).decode())
    assert not marks.leaks_in("nothing of it")


async def test_no_page_metric_or_log_line_has_a_secret(tmp_path: pathlib.Path, marks: Marks) -> None:
    pages_read = 0
    with log_everything() as log:
        async with running_with_secrets(tmp_path, marks) as (env, _), aiohttp.ClientSession() as session:
            paths = [page.path for pages in sections(env.plane.settings.debug).values() for page in pages]
            paths = [
                "/",
                "/metrics",
                "/version",
                "/debug",
                *(p for p in paths if p not in (PREFIX + "profile", PREFIX + "trace")),
            ]
            headers = {"Authorization": f"Bearer {token('edge', 'edge')}"}
            for port in ("HTTP", "monitoring"):
                for path in paths:
                    for query in (
                        ("debug=2",)
                        if path.startswith(PREFIX)
                        else (*COMMON_QUERIES, *PROXY_QUERIES)
                        if path.startswith("/debug/")
                        else ("",)
                    ):
                        async with session.get(
                            f"http://127.0.0.1:{env.plane.ports[port].number}{path}?{query}", headers=headers
                        ) as response:
                            text = await response.text(errors="replace")
                            pages_read += response.status == 200
                        assert not marks.leaks_in(text), f"{path}?{query}"
                        assert not marks.leaks_in(str(response.headers)), f"{path}?{query}"
                for path in (
                    "",
                    "/mesh?namespace=edge",
                    "/search?text=edge",
                    *(f"/object?kind=Secret&namespace=edge&name={name}" for name in ("web", "other", "worse")),
                    "/resource?id=edge-0.edge&type=sds&name=kubernetes://web",
                    "/events",
                ):
                    async with session.get(
                        f"http://127.0.0.1:{env.plane.ports[port].number}/debug/dashboard{path}", headers=headers
                    ) as response:
                        assert response.status == 200
                        body = await (response.content.readuntil(b"\n\n") if path == "/events" else response.read())
                        assert not marks.leaks_in(body.decode()), path
    assert pages_read > 80
    assert len(log.lines) > 5
    assert not marks.leaks_in("\n".join(log.lines))


@pytest.mark.parametrize("variant", ["sotw", "delta"])
async def test_no_page_over_xds_has_a_secret(tmp_path: pathlib.Path, marks: Marks, variant: str) -> None:
    async with running_with_secrets(tmp_path, marks) as (env, _):
        reader = token("istio-system", "reader")
        requests = [
            (f"{DEBUG}config_dump", "edge-0.edge"),
            (DEBUG_PAGE, "config_dump?proxyID=edge-0&types=sds"),
            (DEBUG_PAGE, "adsz"),
        ]
        node = "sidecar~10.0.0.9~tool-1.istio-system~istio-system.svc.cluster.local"
        for type_url, name in requests:
            async with SecureClient(env.port, env.root, token=reader, variant=variant, node_id=node) as tool:
                await tool.request(type_url, name)
                response = await tool.receive()
                packed = [getattr(item, "resource", item).value for item in response.resources]
        assert packed
        assert not marks.leaks_in(b"".join(packed).decode("utf-8", "replace"))


async def test_controlz_hides_secrets_of_the_process(marks: Marks) -> None:
    marks.add("a token of the environment", MARK.encode())
    environ = {
        "API_TOKEN": MARK,
        "DB_PASSWORD": MARK,
        "URL": f"https://user:{MARK}@host/",
        "HEADER": f"Bearer {MARK}",
        "HOME": "/home",
    }
    control = Control(
        "x",
        build_info(),
        ["x", f"--token={MARK}", "--password", MARK],
        environ,
        lambda: b"",
        lambda: None,
        lambda: None,
    )
    async with TestClient(TestServer(application(control))) as client:
        for path in (
            "/",
            "/envz/",
            "/envj/",
            "/argz/",
            "/procj/",
            "/homej/",
            "/versionj/",
            "/scopej/",
            "/memj/",
            "/signalz/",
        ):
            async with client.get(path) as response:
                text = await response.text()
                assert response.status == 200, path
                assert not marks.leaks_in(text), path
        async with client.get("/envj/") as response:
            assert "/home" in await response.text(), "other variables are shown"

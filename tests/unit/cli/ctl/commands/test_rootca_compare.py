"""pilotctl proxy-config rootca-compare compares the roots in the Envoys of two proxies."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ca.pem import certificate_pem
from pilot.cli.ctl.client import PageClient
from pilot.cli.pilotctl import main
from testing.security.certificates import root
from testing.servers.fixed_pages import FixedPages
from tests.unit.cli.ctl.conftest import Run

Start = Callable[..., None]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts the Envoy of a proxy on this machine, which trusts numbered roots."""
    envoys: dict[str, FixedPages] = {}

    def start(name: str, *roots: int) -> None:
        pem = b"".join(certificate_pem(root(number).certificate) for number in roots)
        context = {"trusted_ca": {"inline_bytes": base64.b64encode(pem).decode()}}
        secret = {"name": "ROOTCA", "secret": {"name": "ROOTCA", "validation_context": context}}
        node = {"id": f"sidecar~10.0.0.1~{name}~shop.svc.cluster.local"}
        configs = [
            {"@type": "x/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"node": node}},
            {"@type": "x/envoy.admin.v3.SecretsConfigDump", "dynamic_active_secrets": [secret] if roots else []},
        ]
        envoys[name] = FixedPages(
            lambda path: json.dumps({"node": node} if path == "/server_info" else {"configs": configs})
        )

    def respond(_: PageClient, page: str, **query: str) -> Any:
        name = query["proxyID"]
        metadata = {"PROXY_CONFIG": {"proxyAdminPort": envoys[name].server_port}}
        return {"clients": [{"connectionId": f"{name}-1", "address": "127.0.0.1:4", "metadata": metadata}]}

    monkeypatch.setattr(PageClient, "get", respond)
    yield start
    for envoy in envoys.values():
        envoy.stop()


def test_a_common_root_is_listed_with_its_proxies(run: Run, start: Start) -> None:
    start("tea-1.shop", 0, 1)
    start("cup-1.shop", 1)
    roots = json.loads(run("proxy-config", "rootca-compare", "tea-1.shop", "cup-1.shop", "-o", "json"))
    assert {one["root"]: one["trustedBy"] for one in roots} == {
        "O=domain-0": ["tea-1.shop"],
        "O=domain-1": ["tea-1.shop", "cup-1.shop"],
    }
    assert run("pc", "rc", "tea-1.shop", "cup-1.shop").endswith("tea-1.shop and cup-1.shop trust a common root.\n")


def test_different_or_missing_roots_are_an_error(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    start("tea-1.shop", 0)
    start("cup-1.shop", 1)
    start("pot-1.shop")
    assert main(("pc", "rootca-compare", "tea-1.shop", "cup-1.shop")) == 1
    assert "tea-1.shop trusts O=domain-0, and cup-1.shop trusts O=domain-1" in capsys.readouterr().err
    assert main(("pc", "rootca-compare", "tea-1.shop", "pot-1.shop")) == 1
    assert "the Envoy of pot-1.shop has no root certificates" in capsys.readouterr().err

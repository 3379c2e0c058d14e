"""Commands that query the Envoy of a connected proxy by the proxy's name."""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pilot.cli.pilotctl import main
from tests.unit.cli.ctl.conftest import Run

NODE = "sidecar~10.0.0.1~tea-1.shop~shop.svc.cluster.local"
SECRET = {"name": "default", "secret": {"name": "default", "tls_certificate": {"certificate_chain": {}}}}
DUMP = {
    "configs": [
        {"@type": "x/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"node": {"id": NODE, "cluster": "tea"}}},
        {
            "@type": "x/envoy.admin.v3.SecretsConfigDump",
            "dynamic_active_secrets": [SECRET],
            "dynamic_warming_secrets": [{"name": "kubernetes://tea"}],
        },
    ]
}


class Admin(http.server.BaseHTTPRequestHandler):
    """The admin interface of an Envoy."""

    levels: list[str]

    def do_GET(self) -> None:
        page = self.path.partition("?")[0]
        self.answer(json.dumps({"/server_info": {"node": {"id": NODE}}, "/config_dump": DUMP}[page]))

    def do_POST(self) -> None:
        self.levels.append(self.path)
        self.answer("active loggers:\n  http: debug\n")

    def answer(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    Admin.levels = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Admin) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def local(pages: dict[str, Any], port: int) -> dict[str, Any]:
    """A proxy that connects from this machine, and whose Envoy has this admin port."""
    client = {
        "connectionId": "tea-1.shop-3",
        "address": "127.0.0.1:4444",
        "metadata": {"NAME": "tea-1", "NAMESPACE": "shop", "PROXY_CONFIG": {"proxyAdminPort": port}},
    }
    pages |= {
        "adsz": {"clients": [client]},
        "syncz": [{"proxy": "tea-1.shop", "cluster_id": "west"}],
        "config_dump": {},
    }
    return client


def test_secrets_by_name_are_those_of_the_running_envoy(run: Run, local: dict[str, Any]) -> None:
    lines = [line.split() for line in run("pc", "secrets", "tea").splitlines()]
    assert lines[0] == ["Proxy", "tea-1.shop", "in", "cluster", "west"]
    assert [(line[0], line[-6]) for line in lines[2:]] == [("default", "-"), ("kubernetes://tea", "-")]
    assert "WARMING" in lines[3]


def test_bootstrap_by_name(run: Run, local: dict[str, Any]) -> None:
    assert run("pc", "bootstrap", "tea", "-n", "shop").splitlines()[:3] == [
        "Proxy tea-1.shop",
        "NODE      VALUE",
        f"ID        {NODE}",
    ]


def test_log_levels_by_name(run: Run, local: dict[str, Any]) -> None:
    assert run("pc", "log", "tea", "--level", "http:debug") == "active loggers:\n  http: debug\n"
    run("pc", "log", "tea", "--reset")
    run("pc", "log", "tea", "--level", "http:debug", "--reset", status=2)
    run("pc", "log", status=2)
    assert Admin.levels == ["/logging?http=debug", "/logging?level=warning"]


def test_another_envoy_at_the_admin_port_is_refused(
    local: dict[str, Any], capsys: pytest.CaptureFixture[str], port: int
) -> None:
    local["connectionId"] = "cups-1.shop-4"
    assert main(["pc", "bootstrap", "cups"]) == 1
    assert capsys.readouterr().err == (
        f"Error: the server at http://127.0.0.1:{port} is not the Envoy of cups-1.shop, but {NODE}; use --envoy URL to "
        "specify its admin address\n"
    )


@pytest.mark.parametrize("text", ["<html>", "[]", "{}", '{"node": []}'])
def test_another_server_at_the_admin_port_is_refused(
    local: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(Admin, "do_GET", lambda self: self.answer(text))
    assert main(["pc", "log", "tea"]) == 1
    assert "is not the Envoy of tea-1.shop, but another server; use --envoy URL" in capsys.readouterr().err


def kubectl(folder: pathlib.Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a kubectl that runs a script."""
    path = folder / "kubectl"
    path.write_text(f"#!{sys.executable}\nimport sys, time\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_pod_is_reached_through_kubectl(
    run: Run, local: dict[str, Any], port: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local["address"] = "10.0.0.9:4444"
    words = ["port-forward", "--namespace", "shop", "pod/tea-1", f":{port}", "--address", "127.0.0.1"]
    script = f"assert sys.argv[1:] == {words}\nprint('Forwarding from 127.0.0.1:{port} -> {port}', flush=True)"
    kubectl(tmp_path, f"{script}\ntime.sleep(60)", monkeypatch)
    assert run("pc", "bootstrap", "tea").startswith("Proxy tea-1.shop\n")


def test_reason_of_kubectl_is_reported(
    local: dict[str, Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    local["address"] = "10.0.0.9:4444"
    kubectl(tmp_path, "sys.exit('error: pods \"tea-1\" not found')", monkeypatch)
    assert main(["pc", "log", "tea"]) == 1
    assert capsys.readouterr().err == (
        'Error: cannot reach the Envoy of tea-1.shop through kubectl: error: pods "tea-1" not found\n'
    )


def test_missing_kubectl_is_named(
    local: dict[str, Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    local["address"] = "10.0.0.9:4444"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["pc", "bootstrap", "tea"]) == 1
    assert capsys.readouterr().err == (
        "Error: cannot reach the Envoy of tea-1.shop: it is on another machine, and kubectl, which reaches its Pod, is not "
        "installed; use --envoy URL\n"
    )

"""Commands ask all replicas of a control plane and merge their answers."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pilot.cli.pilotctl import main
from pilot.debug.page import NOT_CONNECTED
from pilot.lib.build_info import VERSION_HEADER
from pilot.lib.xds_types import BY_SHORT_NAME

SYNCED = {BY_SHORT_NAME["cds"]: {"sent": "a", "acked": "a"}}

ROLLOUT = {
    **{"kind": "VirtualService", "namespace": "shop", "name": "tea", "generation": 0},
    **{"exists": True, "ignored": False, "current": True, "delivered": True, "lacking": [], "errors": []},
    **{"connected": 1, "affected": 1, "acknowledged": 1, "disconnected": 0},
    **dict.fromkeys(("refused", "starting", "waiting", "sent", "unknown"), 0),
}
"""The page about a change that all proxies have acknowledged."""


class Replica(http.server.ThreadingHTTPServer):
    """Debug pages of a replica with some proxies. A replica that hangs accepts requests and answers none.

    `headers` are those of its responses. Without them, it is another control plane.
    """

    daemon_threads = True

    def __init__(self, *proxies: str) -> None:
        super().__init__(("127.0.0.1", 0), _Pages)
        self.proxies, self.release = proxies, threading.Event()
        self.headers = {VERSION_HEADER: "1"}
        self.problems: list[dict[str, Any]] = [{"code": "a"}, {"code": "b", "at": self.proxies[:1]}]
        self.release.set()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def hang(self) -> None:
        self.release.clear()

    def page(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        name = query.get("proxyID", "")
        proxies = [proxy for proxy in self.proxies if name in proxy]
        proxies = [proxy for proxy in proxies if proxy == name] or proxies
        if name and not proxies:
            return 404, NOT_CONNECTED
        if name and len(proxies) > 1:
            return 409, f"several proxies match {name!r}"
        statuses = [{"proxy": proxy, "cluster_id": "east", "resources": SYNCED} for proxy in proxies]
        return 200, {
            "/debug/syncz": statuses,
            "/debug/problemz": self.problems,
            "/debug/config_dump": {"configs": [{"name": f"cluster of {name}"}]},
            "/debug/connections": {"totalClients": 0},
            "/debug/clusterz": [{"id": "east", "secretName": "", "syncStatus": "synced"}],
            "/debug/rollout": ROLLOUT,
            "/version": "1-unknown-unknown",
        }[path]


class _Pages(http.server.BaseHTTPRequestHandler):
    server: Replica

    def do_GET(self) -> None:
        self.server.release.wait()
        url = urlsplit(self.path)
        status, page = self.server.page(url.path, {name: values[0] for name, values in parse_qs(url.query).items()})
        body = (page if isinstance(page, str) else json.dumps(page)).encode()
        self.send_response(status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def replicas() -> Iterator[list[Replica]]:
    replicas = [Replica("tea-1.shop", "tea-2.shop"), Replica("cups-1.shop"), Replica("cups-2.shop", "tea.shop")]
    yield replicas
    for replica in replicas:
        replica.release.set()
        replica.shutdown()
        replica.server_close()


def arguments(replicas: list[Replica]) -> list[str]:
    return [word for replica in replicas for word in ("--address", replica.address)]


def proxies(text: str) -> list[str]:
    return [status["proxy"] for status in json.loads(text)]


@pytest.mark.parametrize("is_global", [True, False])
def test_the_proxies_of_all_replicas_are_listed(replicas: list[Replica], capsys: Any, is_global: bool) -> None:
    words = ["proxy-status", "-o", "json"]
    addresses = arguments(replicas)
    assert main([*addresses, *words] if is_global else [*words, *addresses]) == 0
    output = capsys.readouterr()
    assert proxies(output.out) == ["tea-1.shop", "tea-2.shop", "cups-1.shop", "cups-2.shop", "tea.shop"]
    assert output.err == ""


def test_the_variable_holds_several_addresses(replicas: list[Replica], monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("PILOTCTL_ADDRESS", " ".join(replica.address for replica in replicas[:2]))
    assert main(["ps", "-o", "json"]) == 0
    assert proxies(capsys.readouterr().out) == ["tea-1.shop", "tea-2.shop", "cups-1.shop"]


def test_a_replica_that_hangs_is_named(replicas: list[Replica], capsys: Any) -> None:
    replicas[0].hang()
    assert main([*arguments(replicas), "proxy-status", "-o", "json"]) == 1
    output = capsys.readouterr()
    assert proxies(output.out) == ["cups-1.shop", "cups-2.shop", "tea.shop"]
    assert output.err.startswith(f"! replica http://{replicas[0].address} is missing: no response within ")


def test_a_replica_that_is_down_is_named(replicas: list[Replica], capsys: Any) -> None:
    addresses = [*arguments(replicas[:1]), "--address", "127.0.0.1:1"]
    assert main([*addresses, "proxy-status", "-o", "json"]) == 1
    output = capsys.readouterr()
    assert proxies(output.out) == ["tea-1.shop", "tea-2.shop"]
    assert "replica http://127.0.0.1:1 is missing: cannot reach http://127.0.0.1:1: connection refused" in output.err


def test_without_any_answer_the_command_fails(capsys: Any) -> None:
    assert main(["--address", "127.0.0.1:1", "--address", "127.0.0.1:2", "proxy-status"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert re.match(r"Error: cannot reach http://127\.0\.0\.1:[12]: connection refused", output.err)


def test_equal_problems_are_listed_once(replicas: list[Replica], capsys: Any) -> None:
    assert main([*arguments(replicas[:2]), "internal-debug", "problemz"]) == 0
    pages = json.loads(capsys.readouterr().out)
    assert {len(page) for page in pages.values()} == {2}
    assert len(pages) == 2


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("cups-1", 0, "Proxy cups-1.shop in cluster east"),
        ("tea.shop", 0, "Proxy tea.shop in cluster east"),
        ("tea-1.shop", 0, "Proxy tea-1.shop in cluster east"),
        ("cups", 2, "'cups' matches several proxies: cups-1.shop, cups-2.shop"),
        ("tea-", 2, "several proxies match 'tea-'"),
        (
            "bowl",
            1,
            "no connected proxy matches 'bowl' at any replica that answers; no proxies are connected; pilotctl c",
        ),
    ],
)
def test_a_proxy_is_found_at_its_replica(
    replicas: list[Replica], capsys: Any, name: str, status: int, expected: str
) -> None:
    assert main([*arguments(replicas), "proxy-config", "clusters", name]) == status
    output = capsys.readouterr()
    assert expected in (output.out if status == 0 else output.err)


def test_a_proxy_is_found_although_another_replica_hangs(replicas: list[Replica], capsys: Any) -> None:
    replicas[0].hang()
    assert main([*arguments(replicas), "proxy-config", "clusters", "cups-1.shop"]) == 0
    assert "Proxy cups-1.shop" in capsys.readouterr().out


def test_a_proxy_may_be_at_a_replica_that_hangs(replicas: list[Replica], capsys: Any) -> None:
    replicas[0].hang()
    assert main([*arguments(replicas), "proxy-config", "clusters", "tea-1.shop"]) == 1
    assert f"! replica http://{replicas[0].address} is missing" in capsys.readouterr().err

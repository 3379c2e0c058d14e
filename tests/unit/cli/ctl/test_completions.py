"""Completion of proxies, resources and namespaces from the running control plane."""

from __future__ import annotations

import http.server
import threading
from typing import Any

import pytest

from pilot.cli.ctl.client import CommandError
from pilot.cli.pilotctl import main

CLUSTER = "outbound|80||tea.shop.svc.cluster.local"


@pytest.fixture(autouse=True)
def control_plane(pages: dict[str, Any]) -> dict[str, Any]:
    pages["syncz"] = [{"proxy": "tea-1.shop"}, {"proxy": "cups-1.shop"}]
    pages["registryz"] = [{"Attributes": {"Namespace": "shelf"}}, {"Attributes": {"Namespace": "shop"}}]
    pages["adsz"] = {"clients": [{"watches": {"cluster": [CLUSTER, "BlackHoleCluster"], "route": ["80"]}}]}
    return pages


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def complete(*words: str, shell: str = "zsh") -> list[str]:
        """Return the completions of the last word."""
        monkeypatch.setenv("_PILOTCTL_COMPLETE", f"{shell}_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(("pilotctl", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        main()
        lines = capsys.readouterr().out.splitlines()
        return lines[1::3] if shell == "zsh" else [line.partition(",")[2] for line in lines]

    return complete


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("proxy-status", "t"), ["tea-1.shop"]),
        (("proxy-config", "routes", ""), ["cups-1.shop", "tea-1.shop"]),
        (("pc", "log", "c"), ["cups-1.shop"]),
        (("explain", "te"), ["tea-1.shop"]),
        (("explain", "tea-1.shop", "B"), ["BlackHoleCluster"]),
        (("pc", "routes", "tea-1.shop", "--name", "8"), ["80"]),
        (("pc", "endpoints", "tea-1.shop", "--cluster", "o"), [CLUSTER]),
        (("problems", "--namespace", "sh"), ["shelf", "shop"]),
        (("analyze", "-n", "she"), ["shelf"]),
        (("describe", "t"), ["tea-1.shop"]),
        (("authz", "check", "t"), ["tea-1.shop"]),
    ],
)
def test_names_are_completed(complete: Any, words: tuple[str, ...], expected: list[str]) -> None:
    assert complete(*words) == expected


def test_bash_needs_backslashes_before_special_characters(complete: Any) -> None:
    assert complete("explain", "tea-1.shop", "out", shell="bash") == [CLUSTER.replace("|", r"\\|")]
    assert complete("explain", "te", shell="bash") == ["tea-1.shop"]


def test_unreachable_control_plane_completes_nothing(complete: Any, control_plane: dict[str, Any]) -> None:
    control_plane |= dict.fromkeys(("syncz", "registryz"), CommandError("cannot reach it"))
    assert complete("proxy-status", "t") == complete("problems", "-n", "s") == []


def test_slow_control_plane_is_not_awaited(
    complete: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    hold = threading.Event()

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hold.wait()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("_PILOTCTL_COMPLETE", "zsh_complete")
            patch.setenv("COMP_WORDS", f"pilotctl --address 127.0.0.1:{server.server_port} proxy-status t")
            patch.setenv("COMP_CWORD", "4")
            main()
        hold.set()
        server.shutdown()
    assert capsys.readouterr().out.strip() == ""

"""pilotctl wait, rollout status and history, with the pages of small servers."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from rich.text import Text

from pilot.cli.pilotctl import main
from tests.unit.cli.ctl.test_replicas import Replica

FILE = """apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: tea, namespace: shop}
spec: {hosts: [tea], http: [{route: [{destination: {host: tea}}]}]}
"""
COUNTS = ("connected", "affected", "acknowledged", "disconnected", "starting", "waiting", "sent", "refused", "unknown")
PAGE = {
    **dict.fromkeys(COUNTS, 0),
    **{"exists": True, "ignored": False, "current": True, "generation": 0, "lacking": [], "errors": []},
    "delivered": True,
    **{"kind": "VirtualService", "namespace": "shop", "name": "tea"},
}
WEB = {"proxy": "web-0.shop"}
OBJECT = {"kind": "VirtualService", "namespace": "shop", "name": "tea"}
CHANGE = {
    "time": 60.0,
    "objects": [{"action": "update", **OBJECT, "generation": 7, "manager": "me"}],
    **{
        "errors": [{"severity": "error", "code": "bad-host", "message": "bad"}],
        "total": 2,
        "endpoints": 0,
        "proxies": 3,
        "unchanged": 1,
        "acknowledged": 2,
        "refused": 0,
    },
    **{"derivations": 5, "bytes": {"cds": 2000}, "p50": 0.1, "p99": 0.2, "seconds": 0.3},
}
OLDER = {
    **CHANGE,
    "time": 0.0,
    "objects": [
        {"action": "add", **OBJECT, "name": name, "generation": 0, "manager": ""}
        for name in ("tea", "cup", "jug", "pot")
    ],
    "errors": [],
    "total": 5,
    "proxies": 4,
}
FIELDS = [
    {"path": "spec.http[0].timeout", "old": "1s", "new": "2s"},
    {"path": "spec.http[1].timeout", "old": "", "new": "3s"},
]
COST = {"bytes": {"cds": 2000}}


class Rollouts(Replica):
    """A replica. Each request for a rollout gets the next of `pages`, and the last one again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[dict[str, Any]] = [PAGE]
        self.queries: list[dict[str, str]] = []
        self.changes: list[dict[str, Any]] = [CHANGE, OLDER]

    def page(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path == "/debug/history":
            return 200, {"changes": self.changes, "requests": COST, "others": COST, "total": COST}
        self.queries.append(query)
        return 200, self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]


@pytest.fixture
def replicas() -> Iterator[tuple[Rollouts, Rollouts, list[str]]]:
    pair = Rollouts(), Rollouts()
    yield *pair, [word for replica in pair for word in ("--address", replica.address)]
    for replica in pair:
        replica.shutdown()
        replica.server_close()


def test_wait_ends_once_every_replica_has_delivered_the_content_of_the_file(
    replicas: tuple[Rollouts, Rollouts, list[str]], tmp_path: pathlib.Path
) -> None:
    first, second, addresses = replicas
    (tmp_path / "tea.yaml").write_text(FILE)
    first.pages = [PAGE | {"delivered": False, "current": False}, PAGE]
    second.pages = [PAGE, PAGE, PAGE | {"delivered": False, "sent": 1}, PAGE]
    assert main([*addresses, "wait", "-f", str(tmp_path / "tea.yaml")]) == 0
    assert len(first.queries) == 2
    assert [query["name"] for query in first.queries] == ["tea", "tea"]
    assert len(first.queries[0]["fingerprint"]) == 32


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (
            {"refused": 1, "lacking": [{**WEB, "state": "refused", "reason": "rejects its listeners: bad"}]},
            "web-0.shop rejects its listeners: bad",
        ),
        ({"current": False}, "the control plane does not have this version after 0s"),
        (
            {"current": False, "errors": [{"message": "a"}]},
            "the control plane does not have this version after 0s; see pilotctl problems",
        ),
        (
            {"sent": 7, "lacking": [{**WEB, "state": "sent", "reason": "is not responding"}]},
            "7 proxies have not acknowledged it after 0s: web-0.shop is not responding, and 6 more",
        ),
        ({"current": False, "ignored": True}, "the control plane ignores the namespace (discoverySelectors)"),
    ],
)
def test_reason_of_an_undelivered_object(
    replicas: tuple[Rollouts, Rollouts, list[str]],
    page: dict[str, Any],
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, _, addresses = replicas
    first.pages = [PAGE | {"delivered": False} | page]
    assert main([*addresses, "wait", "virtualservice/tea", "-n", "shop", "--timeout", "0s"]) == 1
    assert f"at http://{first.address}: {reason}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "specify objects, as KIND/NAME or with -f"),
        (["tea"], "'tea' is not KIND/NAME, KIND/NAMESPACE/NAME or KIND NAME.NAMESPACE"),
        (["vs/tea", "--timeout", "soon"], "Invalid value for '--timeout'"),
        (["vs/tea", "vs/cup", "--generation", "3"], "--generation requires a single object"),
    ],
)
def test_mistakes_are_explained(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--address", "127.0.0.1:1", "wait", *words]) == 2
    assert message in capsys.readouterr().err


def test_history_lists_the_changes_of_all_replicas_and_their_cost(
    replicas: tuple[Rollouts, Rollouts, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    first, _, addresses = replicas
    assert main([*addresses, "history", "-v"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [" ".join(line.split()) for line in lines]
    replica = f"http://{first.address}"
    tea = "update VirtualService/shop/tea (7) and 1 more bad-host me"
    assert f"1970-01-01 00:01:00 {tea} 2/2 0 0 {replica} 5 2.0kB 0.100s 0.200s 0.300s" in rows
    older = f"1970-01-01 00:00:00 add VirtualService/shop/tea and 4 more - - 2/3 0 1 {replica} 5 2.0kB 0.100s 0.200s -"
    assert rows[rows.index(older) + 1 :][:2] == ["add VirtualService/shop/cup", "add VirtualService/shop/jug"]
    assert (
        f"{replica} has sent 2.0kB: 2.0kB because proxies subscribed, 2.0kB for older changes, and the rest"
        in "\n".join(rows)
    )
    assert main([*addresses, "history", "-n", "other"]) == 0
    assert capsys.readouterr().out.startswith("No changes of objects in the namespace other; 4 in others.")


def test_history_shows_whole_names(
    replicas: tuple[Rollouts, Rollouts, list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, _ = replicas
    change = {"name": "x" * 200, "manager": "kubectl-client-side-apply", "fields": FIELDS}
    first.changes = [CHANGE | {"objects": [CHANGE["objects"][0] | change]}, OLDER]
    assert main(["--address", first.address, "history"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "DERIVATIONS" not in lines[0]
    assert f"VirtualService/shop/{'x' * 200}" in lines[1]
    assert "bad-host   kubectl-client-side-apply   2/2" in lines[1]
    assert lines[2:4] == ["  spec.http[0].timeout: 1s → 2s", "  spec.http[1].timeout: not set → 3s"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--address", first.address, "history"]) == 0
    screen = Text.from_ansi(capsys.readouterr().out).plain
    assert f"VirtualService/shop/{'x' * 200}" in screen
    assert "bad-host   kubectl…   2/2" in screen


def test_history_attributes_rejections_to_the_objects_that_cause_them(
    replicas: tuple[Rollouts, Rollouts, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    first, _, _ = replicas
    lua = {"kind": "EnvoyFilter", "namespace": "shop", "name": "lua", "proxies": 1}
    first.changes = [CHANGE | {"refused": 1, "refusedFor": [lua]}, OLDER | {"refusedFor": [OBJECT | {"proxies": 1}]}]
    assert main(["--address", first.address, "history"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "  rejected by 1 proxy because of EnvoyFilter shop/lua, not because of this change"
    assert "because of" not in "".join(lines[3:])


def test_rollout_status_names_each_proxy_without_the_change_and_the_errors_of_the_object(
    replicas: tuple[Rollouts, Rollouts, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    first, _, _ = replicas
    lacking = [
        {**WEB, "state": "refused", "reason": "rejects its routes: bad"},
        {"proxy": "tax-0.shop", "state": "starting", "reason": "is not responding"},
    ]
    counts = {"affected": 5, "acknowledged": 3, "refused": 1, "starting": 1, "delivered": False}
    errors = [{"path": "spec.http[0]", "message": "no such host"}]
    first.pages = [PAGE | counts | {"lacking": lacking}, PAGE | counts | {"errors": errors}]
    command = ["--address", first.address, "rollout", "status", "virtualservice/tea", "-n", "shop"]
    assert main(command) == 0
    _, row, *lines = capsys.readouterr().out.splitlines()
    assert row.split()[2:] == ["-", "5", "3", "1", "1", "0", "REJECTED"]
    assert lines == [
        "virtualservice/shop/tea is live on 3 of 5 affected proxies.",
        "  web-0.shop rejects its routes: bad",
        "  tax-0.shop is not responding",
    ]
    first.pages.insert(0, PAGE | {"disconnected": 2})
    assert main(command) == 0
    _, row, *lines = capsys.readouterr().out.splitlines()
    assert row.split()[-4:] == ["2", "UP", "TO", "DATE"]
    assert lines == [
        "virtualservice/shop/tea affects no connected proxy.",
        "  2 proxies disconnected before responding, and will get it when connecting again",
    ]
    first.pages.insert(0, PAGE | counts | {"refused": 0, "lacking": [lacking[1] | {"silent": True}]})
    assert main(command) == 0
    _, row, *_ = capsys.readouterr().out.splitlines()
    assert row.endswith("   NOT RESPONDING")
    assert main(command) == 0
    _, row, _, line, more = capsys.readouterr().out.splitlines()
    assert row.split()[-2:] == ["HAS", "ERRORS"]
    assert (line, more) == ("  has an error: spec.http[0] no such host", "  and 2 more")


def test_rejections_because_of_another_object_leave_the_delivery_incomplete(
    replicas: tuple[Rollouts, Rollouts, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    first, _, _ = replicas
    patch = {"kind": "EnvoyFilter", "namespace": "shop", "name": "patch"}
    counts = {"affected": 1, "acknowledged": 0, "refused": 1, "delivered": False}
    for causes, state in (([patch], "INCOMPLETE"), ([patch, OBJECT], "REJECTED"), ([], "REJECTED")):
        first.pages = [PAGE | counts | {"lacking": [{**WEB, "state": "refused", "reason": "no", "causes": causes}]}]
        assert main(["--address", first.address, "rollout", "status", "virtualservice/tea", "-n", "shop"]) == 0
        _, row, *_ = capsys.readouterr().out.splitlines()
        assert row.endswith(f" {state}")


def test_the_default_namespace_is_that_of_the_context(
    replicas: tuple[Rollouts, Rollouts, list[str]], tmp_path: pathlib.Path
) -> None:
    first, _, addresses = replicas
    context = {"name": "east", "context": {"namespace": "bar"}}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump({"current-context": "east", "contexts": [context]}))
    explicit = FILE.replace("namespace: shop", "namespace: default").replace("name: tea", "name: cup")
    (tmp_path / "tea.yaml").write_text(f"{FILE.replace(', namespace: shop', '')}---\n{explicit}")
    options = ("-c", str(tmp_path / "kubeconfig"))
    assert main([*addresses, "wait", "-f", str(tmp_path / "tea.yaml"), *options]) == 0
    assert {(one["name"], one["namespace"]) for one in first.queries} == {("tea", "bar"), ("cup", "default")}
    first.queries.clear()
    assert main([*addresses, "rollout", "status", "vs/tea", "gatewayclass/istio", *options]) == 0
    assert [query.get("namespace") for query in first.queries] == ["bar", None]

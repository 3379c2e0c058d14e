"""Output of pilotctl proxy-status."""

from __future__ import annotations

import json
import time
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.commands import proxy_status
from pilot.cli.pilotctl import main, pilotctl
from pilot.lib.xds_types import BY_SHORT_NAME, WORKLOAD
from tests.unit.cli.ctl.conftest import Run
from tests.unit.cli.ctl.test_output import terminal

CDS = BY_SHORT_NAME["cds"]
SYNCED = {"sent": "b", "acked": "b"}
STALE = {"sent": "b", "acked": "a", "sentTime": "2026-01-02T03:04:05.5Z"}
REJECTED = {"sent": "b", "acked": "a", "lastError": "bad\n\x1b[2J", "rejectedSince": "2026-01-02T03:00:00Z"}


def status(name: str, resource: dict[str, str] | None = None) -> dict[str, Any]:
    return {"proxy": name, "resources": {CDS: resource} if resource is not None else {}}


MESH = [
    status("a.x", SYNCED),
    status("b.x", STALE),
    *(status(f"c-{number}.x", REJECTED) for number in range(5)),
    status("d.x", {}),
    status("e.x"),
]


def test_worst_proxies_come_first_with_their_reasons(run: Run, pages: dict[str, Any]) -> None:
    pages["syncz"] = MESH
    lines = [" ".join(line.split()) for line in run("proxy-status").splitlines()]
    assert [line.split()[0] for line in lines[1:10]] == [*(f"c-{n}.x" for n in range(5)), "b.x", "e.x", "d.x", "a.x"]
    assert lines[10:] == [
        r"c-0.x, c-1.x, c-2.x and 2 more rejected CDS since 2026-01-02 03:00:00 UTC: bad\n\x1b[2J",
        "b.x has not acknowledged CDS since 2026-01-02 03:04:05 UTC",
        "e.x is connected, but has not requested any configuration",
        "9 proxies: 5 ERROR, 1 STALE, 1 NOTHING REQUESTED, 1 NOT SENT, 1 SYNCED",
    ]


def test_types_of_ztunnels_have_columns_if_one_is_connected(run: Run, pages: dict[str, Any]) -> None:
    """Release note 56441."""
    ztunnel = {BY_SHORT_NAME["wds"]: SYNCED, WORKLOAD: STALE, BY_SHORT_NAME["wads"]: {}}
    pages["syncz"] = [
        {"proxy": "z.x", "proxy_type": "ztunnel", "resources": ztunnel},
        {"proxy": "a.x", "proxy_type": "sidecar", "resources": {CDS: SYNCED, BY_SHORT_NAME["nds"]: SYNCED}},
    ]
    lines = [line.split("  ") for line in run("proxy-status").splitlines()]
    head, *rows = [[cell.strip() for cell in line if cell.strip()] for line in lines[:3]]
    assert head == ["NAME", "CLUSTER", "TYPE", "CDS", "LDS", "EDS", "RDS", "WDS", "WADS", "NDS", "VERSION"]
    assert rows == [
        ["z.x", "ztunnel", "-", "-", "-", "-", "STALE", "NOT SENT", "-"],
        ["a.x", "sidecar", "SYNCED", "-", "-", "-", "-", "-", "SYNCED"],
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--state", "stale"), ["b.x"]),
        (("--state", "SYNCED", "--state", "not-sent"), ["d.x", "a.x"]),
        (("--state", "nothing-requested"), ["e.x"]),
        (("--state", "error"), [f"c-{n}.x" for n in range(5)]),
    ],
)
def test_proxies_are_selected_by_state(
    run: Run, pages: dict[str, Any], words: tuple[str, ...], expected: list[str]
) -> None:
    pages["syncz"] = MESH
    assert [proxy["proxy"] for proxy in json.loads(run("proxy-status", *words, "-o", "json"))] == expected
    assert run("ps", *words).endswith("9 proxies: 5 ERROR, 1 STALE, 1 NOTHING REQUESTED, 1 NOT SENT, 1 SYNCED\n")


def test_a_proxy_without_subscriptions_is_described(run: Run, pages: dict[str, Any]) -> None:
    pages["syncz"] = [status("e.x")]
    assert run("proxy-status", "e").endswith("e.x is connected, but has not requested any configuration\n")


@pytest.mark.parametrize("command", ["proxy-status", "problems", "status", "history"])
def test_a_namespace_that_does_not_exist_has_a_suggestion(run: Run, pages: dict[str, Any], command: str) -> None:
    names = ("web-1.shop", "web-2.shop", *(f"a.n-{number}" for number in range(5)))
    pages["connections"] = {"totalClients": 7, "clients": [{"connectionId": f"{name}-1"} for name in names]}
    pages |= {"syncz": [], "problemz": [], "statusz": [], "history": {"changes": []}}
    remark = "; did you mean shop?; namespaces with proxies: n-0, n-1, n-2, n-3, n-4 and 1 more.\n"
    assert run(command, "-n", "shpo").endswith(remark)
    assert "did you mean" not in run(command, "-n", "shop")
    assert "did you mean" not in run(command)


def test_watched_status_survives_an_interruption_of_the_control_plane(
    pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [MESH[:1], CommandError("cannot reach it"), MESH[1:2]]

    def sleep(_: float) -> None:
        if not answers:
            raise KeyboardInterrupt
        pages["syncz"] = answers.pop(0)

    pages["syncz"] = answers.pop(0)
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "strftime", lambda _: "12:00:01")
    main(["proxy-status", "--watch"])
    first, second, third, *_ = capsys.readouterr().out.split("---\n")
    assert first.splitlines()[0] == "12:00:01"
    assert second == "cannot reach it\nThe status at 12:00:01 was:\n" + first.partition("\n")[2]
    assert "1 proxy: 1 STALE" in third


def test_watch_shows_as_many_rows_as_fit(monkeypatch: pytest.MonkeyPatch, pages: dict[str, Any]) -> None:
    def sleep(_: float) -> None:
        raise KeyboardInterrupt

    pages["syncz"] = [status(f"proxy-{number}.{'x' * 60}", SYNCED) for number in range(100)]
    monkeypatch.setattr(time, "sleep", sleep)
    screen = terminal(monkeypatch)
    main(["proxy-status", "--watch"])
    output = screen.getvalue()
    assert "proxy-14.xxx" in output
    assert "proxy-16.xxx" not in output
    assert "… and 85 more" in output
    assert "100 proxies: 100 SYNCED" in output


def test_watched_status_is_redrawn_until_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    with mock.patch.object(PageClient, "get", return_value=[]):
        result = CliRunner().invoke(pilotctl, ["proxy-status", "--watch"])
    assert result.output.count("No proxy is connected") == 2
    assert sleeps == [proxy_status.SECONDS] * 2


def test_proxy_status_of_one_proxy(run: Run, pages: dict[str, Any]) -> None:
    resources = {
        BY_SHORT_NAME["cds"]: {"sent": "b", "acked": "a", "sentTime": "2026-01-02T03:04:05.5Z"},
        BY_SHORT_NAME["eds"]: {},
        BY_SHORT_NAME["lds"]: {"sent": "b", "lastError": "bad"},
    }
    proxy = {
        "proxy": "tea-1.shop",
        "proxy_type": "sidecar",
        "istio_version": "1.28.0",
        "cluster_id": "west",
        "resources": resources,
    }
    pages["syncz"], pages["describe"] = [proxy], {"rejections": ["rejected LDS: bad, because of x"]}
    assert [line.split() for line in run("proxy-status", "tea-1").splitlines()] == [
        ["tea-1.shop", "(sidecar,", "1.28.0)", "in", "west"],
        ["TYPE", "STATE", "SENT", "ACKNOWLEDGED", "TIME"],
        ["CDS", "STALE", "b", "a", "2026-01-02T03:04:05.5Z"],
        ["EDS", "NOT", "SENT", "-", "-", "-"],
        ["LDS", "ERROR", "b", "-", "-"],
        ["tea-1.shop", "rejected", "LDS:", "bad,", "because", "of", "x"],
        ["tea-1.shop", "has", "not", "acknowledged", "CDS", "since", "2026-01-02", "03:04:05", "UTC"],
    ]


def test_difference_has_seven_context_lines() -> None:
    ours = [{"name": "b", "@type": "x", "list": list(range(20)), "text": "é"}, {"name": "a", "n": 1.0}]
    theirs = [{"n": 1, "name": "a"}, {"name": "b", "list": [*range(10), 99, *range(11, 20)], "text": "é", "@type": "y"}]
    lines = proxy_status._difference("Routes", ours, theirs)
    context = [[f"       {n}," for n in numbers] for numbers in (range(3, 10), range(11, 18))]
    assert lines == [
        "--- Istiod Routes",
        "+++ Envoy Routes",
        "@@ -11,15 +11,15 @@",
        *context[0],
        "-      10,",
        "+      99,",
        *context[1],
    ]
    assert proxy_status._lines(ours)[:5] == ["[", "  {", '    "n": 1,', '    "name": "a"', "  },"]
    assert '    "text": "é"' in proxy_status._lines(ours)

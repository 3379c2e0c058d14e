"""Output of pilotctl: tables, colours, Envoy resources, differences and debug pages."""

from __future__ import annotations

import io
import itertools
import json
import sys
import time
from importlib import import_module
from typing import Any

import pytest
from click.shell_completion import CompletionItem, ShellComplete
from rich.console import Console

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.envoy import EnvoyDump
from pilot.cli.ctl.output import CommandResult, TextTable, render, say, show, table, watch, write
from pilot.cli.ctl.tables import clusters, listeners, routes
from pilot.cli.pilotctl import main, pilotctl

ROWS = TextTable(("NAME", "STATE"), [("a", "SYNCED"), ("long name", 7)])
PLAIN = "NAME        STATE\na           SYNCED\nlong name   7\n"
proxy_status = import_module("pilot.cli.ctl.proxy_status")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace standard output by a terminal with 60 columns."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    for name, value in {"TERM": "xterm", "COLUMNS": "60", "LINES": "20"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


def test_output_is_plain_text_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say(["head", ROWS, "foot"])
    assert capsys.readouterr().out == f"head\n{PLAIN}foot\n"
    assert table(("A",), []) == "A"
    with pytest.raises(ValueError, match="shorter"):
        table(("A", "B"), [("a", "b"), ("a",)])


def test_terminal_output_is_styled_and_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    say([f"[red]:tea: {'x' * 70}", ROWS])
    assert screen.getvalue().splitlines() == [
        f"[red]:tea: {'x' * 70}",
        "\x1b[1mNAME     \x1b[0m\x1b[1m   \x1b[0m\x1b[1mSTATE \x1b[0m",
        "a           \x1b[32mSYNCED\x1b[0m",
        "long name   7     ",
    ]


@pytest.mark.parametrize(
    ("cell", "style"),
    [
        ("SYNCED", "32"),
        ("HEALTHY", "32"),
        ("ALLOWED", "32"),
        ("ok", "32"),
        ("STALE", "33"),
        ("NOT SENT", "33"),
        ("DEGRADED", "33"),
        ("warning", "33"),
        ("ERROR", "1;31"),
        ("UNHEALTHY", "31"),
        ("DENIED", "1;31"),
        ("error", "1;31"),
        ("synced", ""),
    ],
)
def test_state_colours(cell: str, style: str) -> None:
    screen = io.StringIO()
    console = Console(force_terminal=True, color_system="standard", width=40, file=screen)
    console.print(render(TextTable(("S",), [(cell,)])))
    assert screen.getvalue().splitlines()[1].rstrip() == (f"\x1b[{style}m{cell}\x1b[0m" if style else cell)


def test_unencodable_characters_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, expected in (("ascii", b"tea \\u2714\n"), ("utf-8", "tea ✔\n".encode())):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
        write("tea ✔")
        assert raw.getvalue() == expected, "output is flushed at once"
    unknown = io.StringIO()  # no encoding
    monkeypatch.setattr(sys, "stdout", unknown)
    write("tea ✔")
    assert unknown.getvalue() == "tea ✔\n"


def test_machine_formats_keep_order_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"z": "é" + "x y " * 50, "a": [1, {"b": None}], "e": []}
    show(CommandResult(value, ["never"]), "json")
    assert capsys.readouterr().out == json.dumps(value, indent=4, ensure_ascii=False) + "\n"
    show(CommandResult(value, ["never"]), "yaml")
    assert capsys.readouterr().out == f"z: '{value['z']}'\na:\n- 1\n- b: null\ne: []\n"
    show(CommandResult(value, [ROWS]), "table")
    assert capsys.readouterr().out == PLAIN


def test_watch_repeats_output_below_dashes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = itertools.count(1)

    def sleep(seconds: float) -> None:
        assert seconds == 2.5
        if next(rounds) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        watch(lambda: ["head", ROWS], 2.5)
    assert capsys.readouterr().out == f"head\n{PLAIN}---\n" * 2


def test_watch_redraws_a_terminal_until_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = itertools.count(1)

    def sleep(_: float) -> None:
        if next(rounds) == 3:
            raise KeyboardInterrupt

    frames = itertools.count(1)
    monkeypatch.setattr(time, "sleep", sleep)
    screen = terminal(monkeypatch)
    watch(lambda: [f"round {next(frames)}"], 1.0)
    output = screen.getvalue()
    assert [f"round {n}" in output for n in (1, 2, 3, 4)] == [True, True, True, False]
    assert "\x1b[?1049h" in output, "an alternate screen"


# -- tables of Envoy resources -----------------------------------------------------------------------------------------


def test_routes_are_sorted_by_port_then_name() -> None:
    names = ["tea", "9080", "80", "65536", "a"]
    configs = [
        {"name": name, "virtualHosts": [{"name": "h", "domains": list("abcd"[:n])}]} for n, name in enumerate(names)
    ]
    assert [(row[0], row[2]) for row in routes.rows(configs)] == [
        ("80", "a, b"),
        ("9080", "a"),
        ("65536", "a, b + 1 more"),
        ("a", "a, b + 2 more"),
        ("tea", ""),
    ]


def test_clusters_and_listeners_are_sorted() -> None:
    names = [
        "outbound|9080||b",
        "outbound|80||b",
        "outbound|80|v1|b",
        "PassthroughCluster",
        "inbound|80||",
        "outbound|80||a",
    ]
    assert [row[:4] for row in clusters.rows([{"name": name} for name in names])] == [
        ("-", "80", "-", "inbound"),
        ("PassthroughCluster", "-", "-", "-"),
        ("a", "80", "-", "outbound"),
        ("b", "80", "-", "outbound"),
        ("b", "80", "v1", "outbound"),
        ("b", "9080", "-", "outbound"),
    ]
    addresses = [("b", 80), ("a", 80), ("c", 15001), ("d", 0)]
    configs = [
        {"name": name, "address": {"socketAddress": {"address": "0.0.0.0", **({"portValue": n} if n else {})}}}
        for name, n in addresses
    ]
    rows = listeners.rows([{**config, "filterChains": [{}]} for config in [*configs, {"name": "internal"}]])
    assert [row[0] for row in rows] == ["d", "internal", "a", "b", "c"]


@pytest.mark.parametrize(
    ("short_type", "envelope", "entries", "dynamic_names", "all_names"),
    [
        (
            "cds",
            "Clusters",
            {"dynamicActiveClusters": [{"cluster": {"name": "a"}}], "staticClusters": [{"cluster": {"name": "s"}}]},
            "a",
            "as",
        ),
        (
            "lds",
            "Listeners",
            {
                "dynamicListeners": [{"name": "a", "activeState": {"listener": {"x": 1}}}, {"name": "warming"}],
                "staticListeners": [{"listener": {"name": "s"}}],
            },
            "a",
            "as",
        ),
        (
            "rds",
            "Routes",
            {
                "dynamicRouteConfigs": [{"routeConfig": {"name": "a"}}],
                "staticRouteConfigs": [{"routeConfig": {"name": "s"}}],
            },
            "a",
            "as",
        ),
        (
            "eds",
            "Endpoints",
            {
                "dynamicEndpointConfigs": [{"endpointConfig": {"name": "a"}}],
                "staticEndpointConfigs": [{"endpointConfig": {"name": "s"}}],
            },
            "a",
            "as",
        ),
        ("ecds", "Ecds", {"ecdsFilters": [{"ecdsFilter": {"name": "a"}}]}, "a", "a"),
        (
            "sds",
            "Secrets",
            {
                "dynamicActiveSecrets": [{"name": "a", "secret": {"x": 1}}],
                "dynamicWarmingSecrets": [{"name": "w"}],
                "staticSecrets": [{"name": "s"}],
            },
            "aw",
            "aws",
        ),
    ],
)
def test_resources_of_a_dump(
    short_type: str, envelope: str, entries: dict[str, Any], dynamic_names: str, all_names: str
) -> None:
    dump = EnvoyDump(
        {
            "configs": [
                {"@type": f"type.googleapis.com/envoy.admin.v3.{envelope}ConfigDump", **entries},
                {"@type": "other"},
                "broken",
            ]
        }
    )
    assert "".join(resource["name"] for resource in dump.resources(short_type, dynamic=True)) == dynamic_names
    assert "".join(resource["name"] for resource in dump.resources(short_type)) == all_names


# -- debug pages -------------------------------------------------------------------------------------------------------

Calls = list[tuple[str, dict[str, str]]]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Requests to a control plane that responds with "text"."""
    calls: Calls = []

    def text(_: PageClient, path: str, **query: str) -> str:
        calls.append((path, query))
        return "text\n\n"

    monkeypatch.setattr(PageClient, "text", text)
    monkeypatch.setattr(PageClient, "get", lambda _, page: ["/debug/a", "/debug/b"])
    return calls


@pytest.mark.parametrize(
    ("page", "path", "query"),
    [
        ("syncz", "debug/syncz", {}),
        ("/debug/syncz", "debug/syncz", {}),
        ("debug/config_dump?proxyID=web", "debug/config_dump", {"proxyID": "web"}),
        ("x?empty=&a=b%20c", "debug/x", {"empty": "", "a": "b c"}),
    ],
)
def test_page_request_keeps_its_query(
    requests: Calls, capsys: pytest.CaptureFixture[str], page: str, path: str, query: dict[str, str]
) -> None:
    assert main(["internal-debug", page]) == 0
    assert (capsys.readouterr().out, requests) == ("text\n", [(path, query)])


def test_pages_are_listed_and_completed(
    requests: Calls, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def completions(incomplete: str) -> list[str]:
        items: list[CompletionItem] = ShellComplete(pilotctl, {}, "pilotctl", "X").get_completions(
            ["internal-debug"], incomplete
        )
        return [item.value for item in items]

    assert main(["internal-debug"]) == 0
    assert (capsys.readouterr().out, requests) == ("/debug/a\n/debug/b\n", [])
    assert (completions("/debug/"), completions("/debug/b"), completions("x")) == (
        ["/debug/a", "/debug/b"],
        ["/debug/b"],
        [],
    )

    def fail(*_: object) -> None:
        raise CommandError("nobody answers")

    monkeypatch.setattr(PageClient, "get", fail)
    assert completions("") == []


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

"""Complete ControlZ pages, and memory and process data with known inputs."""

from __future__ import annotations

import gc
import re

import pytest

from pilot.controlz import process, site
from pilot.controlz.application import MAX_BODY_SIZE
from pilot.controlz.process import memory_statistics, process_facts
from pilot.controlz.scopes import WrongRequestError, change_scope

MENU = (
    '<a href="/scopez/">Scopes</a><a href="/memz/">Memory</a><a href="/envz/">Environment</a><a href="/procz/">Process</a>'
    '<a href="/argz/">Arguments</a><a href="/versionz/">Version</a><a href="/metricz/">Metrics</a><a href="/signalz/">Signals</a>'
)
FACTS = '<table><tr><th scope="col">name</th><th scope="col">value</th></tr>'
TOPICS = {topic.name: topic for topic in site.TOPICS}


def heading_and_body(page: str) -> tuple[str, str]:
    """Return the heading and body of a page after checking its title and menu."""
    title, menu, heading, body = re.findall(
        r"(?s)<title>(.*)</title>.*Home</a>(.*)</nav>\n<h1>(.*)</h1>\n<p id=[^\n]*\n(.*)\n<script>", page
    )[0]
    assert (title, menu) == (heading, MENU)
    return heading, body


@pytest.mark.parametrize(
    ("topic", "data", "heading", "body"),
    [
        (
            "proc",
            {"pid": 7, "wd": "/a&b"},
            "Process",
            f"{FACTS}<tr><td>pid</td><td>7</td></tr><tr><td>wd</td><td>/a&amp;b</td></tr></table>",
        ),
        ("version", {"version": "1.2"}, "Version", f"{FACTS}<tr><td>version</td><td>1.2</td></tr></table>"),
        (
            "env",
            [{"name": "A", "value": "<x>"}],
            "Environment",
            '<table><tr><th scope="col">variable</th><th scope="col">value</th></tr><tr><td>A</td><td>&lt;x&gt;</td></tr></table>',
        ),
        (
            "arg",
            ["pilot-discovery", "discovery"],
            "Arguments",
            '<table><tr><th scope="col">number</th><th scope="col">argument</th></tr>'
            "<tr><td>0</td><td>pilot-discovery</td></tr><tr><td>1</td><td>discovery</td></tr></table>",
        ),
        (
            "mem",
            {"Alloc": 5, "BySize": [1]},
            "Memory",
            '<button data-method="PUT" data-path="/memj/forcecollection">Collect garbage now</button>'
            f"{FACTS}<tr><td>Alloc</td><td>5</td></tr></table>",
        ),
        (
            "metric",
            [{"metric": [{"name": "pushes", "labels": {"type": "cds", "cluster": "a"}, "value": "3"}]}],
            "Metrics",
            '<table><tr><th scope="col">metric</th><th scope="col">labels</th><th scope="col">value</th></tr>'
            "<tr><td>pushes</td><td>type=cds, cluster=a</td><td>3</td></tr></table>",
        ),
        (
            "signal",
            ["SIGUSR1"],
            "Signals",
            "<p>SIGUSR1 logs the stacks of all threads and tasks.</p>"
            '<button data-method="PUT" data-path="/signalj/SIGUSR1">Send SIGUSR1</button>',
        ),
        (
            "scope",
            [{"name": 'a"b', "description": "what", "output_level": "info", "stack_trace_level": "none"}],
            "Log scopes",
            '<table><tr><th scope="col">scope</th><th scope="col">description</th><th scope="col">output level</th>'
            '<th scope="col">stack trace level</th></tr><tr><td>a&quot;b</td><td>what</td>'
            '<td><select aria-label="output level of a&quot;b" data-scope="a&quot;b" data-field="output_level"><option>debug</option>'
            "<option selected>info</option><option>warn</option><option>error</option><option>fatal</option><option>none</option></select></td>"
            '<td><select aria-label="stack trace level of a&quot;b" data-scope="a&quot;b" data-field="stack_trace_level"><option>debug</option>'
            "<option>info</option><option>warn</option><option>error</option><option>fatal</option><option selected>none</option></select></td>"
            "</tr></table>",
        ),
    ],
)
def test_topic_page(topic: str, data: object, heading: str, body: str) -> None:
    assert heading_and_body(TOPICS[topic].render(data)) == (heading, body)


def test_home_and_not_found_pages() -> None:
    assert heading_and_body(site.home_page({"ProcessName": "pilot-discovery"})) == (
        "ControlZ",
        f"{FACTS}<tr><td>ProcessName</td><td>pilot-discovery</td></tr></table>",
    )
    assert heading_and_body(site.not_found_page()) == ("Page not found", "<p>Choose a page in the menu above.</p>")


LIST_FIELDS, ZERO_FIELDS = (
    ("PauseNs", "PauseEnd", "BySize"),
    (
        "TotalAlloc",
        "Lookups",
        "Mallocs",
        "Frees",
        "HeapIdle",
        "HeapReleased",
        "MSpanInuse",
        "MSpanSys",
        "MCacheInuse",
        "MCacheSys",
        "BuckHashSys",
        "GCSys",
        "NextGC",
        "LastGC",
        "PauseTotalNs",
        "NumForcedGC",
        "GCCPUFraction",
    ),
)


@pytest.mark.parametrize(
    ("status", "heap", "resident", "stack", "other"),
    [
        ({"VmRSS": 70, "RssAnon": 40, "RssFile": 20, "RssShmem": 10, "VmStk": 3}, 40_960, 71_680, 3_072, 30_720),
        ({}, 0, 0, 0, 0),
    ],
)
def test_memory_statistics_in_bytes(
    monkeypatch: pytest.MonkeyPatch, status: dict[str, int], heap: int, resident: int, stack: int, other: int
) -> None:
    monkeypatch.setattr(process, "process_status", lambda: status)
    monkeypatch.setattr(gc, "get_stats", lambda: [{"collections": 5}, {"collections": 2}, {"collections": 1}])
    statistics = memory_statistics()
    assert statistics.pop("HeapObjects") > 10_000
    sizes = {
        "Alloc": heap,
        "Sys": resident,
        "HeapAlloc": heap,
        "HeapSys": heap,
        "HeapInuse": heap,
        "StackInuse": stack,
        "StackSys": stack,
    }
    lists: dict[str, list[int]] = {name: [] for name in LIST_FIELDS}
    collections = {"NumGC": 8, "EnableGC": gc.isenabled(), "DebugGC": False}
    assert statistics == {**sizes, "OtherSys": other, **collections, **dict.fromkeys(ZERO_FIELDS, 0), **lists}


async def test_process_threads_and_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "process_status", lambda: {"Threads": 12})
    monkeypatch.setattr("os.getgroups", lambda: [])
    facts = process_facts()
    assert (facts["threads"], facts["goroutines"], facts["groups"]) == (12, 1, None)
    monkeypatch.setattr("os.getgroups", lambda: [4, 5])
    assert process_facts()["groups"] == [4, 5]


def test_maximum_body_size_is_16_kib() -> None:
    assert MAX_BODY_SIZE == 16_384


@pytest.mark.parametrize(("length", "quoted"), [(100, "a" * 100), (101, "a" * 100)])
def test_unknown_scope_name_is_truncated_in_the_error(length: int, quoted: str) -> None:
    with pytest.raises(WrongRequestError) as error:
        change_scope("a" * length, b"{}")
    assert str(error.value).startswith(f"unknown scope name: {quoted}")
    assert ("aaa" + "…" in str(error.value)) == (length > 100)

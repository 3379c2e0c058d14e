"""ControlZ: HTML pages, JSON data and changes."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pilot.controlz import application as application_module
from pilot.controlz.application import MAX_BODY_SIZE, application
from pilot.controlz.control import Control
from pilot.lib.build_info import BuildInfo
from pilot.lib.logging import log
from pilot.lib.logging.scopes import find_scope, set_output_level
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.redaction import HIDDEN, redacted_arguments, redacted_environment

SCOPE = "controlz-test"
PLAIN = "text/plain; charset=utf-8"
# pragma: allowlist nextline secret
ENVIRON = {"ZONE": "<b>west</b>", "API_TOKEN": "MARKED-1", "HOME": "/root", "PROXY": "http://me:MARKED-2@proxy:3128"}
ARGUMENTS = ("/bin/pilot-discovery", "discovery", "--password=MARKED-3", "--token", "MARKED-4", "--domain", "a<b")
TOPICS = ("scope", "mem", "env", "proc", "arg", "version", "metric", "signal")
Client = TestClient[Any, Any]


class ProcessRecorder:
    """Process double that records exit and stack dump requests."""

    def __init__(self) -> None:
        self.exit_event = asyncio.Event()
        self.stack_dumps = 0

    def count_stacks(self) -> None:
        self.stack_dumps += 1


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    log.scope(SCOPE)
    set_output_level(SCOPE, "info")
    yield
    log.scope(SCOPE).setLevel(0)
    log.scope(SCOPE).filters.clear()


@pytest.fixture
async def process() -> ProcessRecorder:
    return ProcessRecorder()


@pytest.fixture
async def site(process: ProcessRecorder) -> AsyncIterator[Client]:
    metrics = Metrics(BuildInfo("1.2", "abc", "Clean"))
    metrics.connected("1.30")
    build = BuildInfo("1.2", "abc", "Clean")
    control = Control(
        "pilot-discovery", build, ARGUMENTS, ENVIRON, metrics.exposition, process.exit_event.set, process.count_stacks
    )
    async with TestClient(TestServer(application(control))) as client:
        yield client


async def data(site: Client, path: str) -> Any:
    async with site.get(path) as response:
        assert (response.status, response.headers["Content-Type"]) == (200, PLAIN)
        text = await response.text()
    assert text.endswith("\n")
    return json.loads(text)


async def send(site: Client, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
    async with site.request(method, path, data=body, allow_redirects=False) as response:
        return response.status, await response.text()


# -- scopes ------------------------------------------------------------------------------------------------------------


async def test_scopes_are_listed_by_name_and_individually(site: Client) -> None:
    scopes = await data(site, "/scopej/")
    assert [entry["name"] for entry in scopes] == sorted(entry["name"] for entry in scopes)
    assert {"default", SCOPE} <= {entry["name"] for entry in scopes}
    expected = {
        "name": SCOPE,
        "description": "",
        "output_level": "info",
        "stack_trace_level": "none",
        "log_callers": False,
    }
    assert await data(site, f"/scopej/{SCOPE}") == expected
    assert expected in scopes


async def test_level_change_takes_effect_immediately(site: Client, tmp_path: pathlib.Path) -> None:
    log.configure("default:info", False, [str(tmp_path / "log")])
    log.scope(SCOPE).debug("before")
    body = json.dumps({"name": SCOPE, "output_level": "debug"}).encode()
    assert await send(site, "PUT", f"/scopej/{SCOPE}", body) == (202, "")
    log.scope(SCOPE).debug("after")
    for handler in log.scope("default").handlers:
        handler.flush()
    assert [line.split("\t")[1:] for line in (tmp_path / "log").read_text().splitlines()] == [["debug", SCOPE, "after"]]
    assert (await data(site, f"/scopej/{SCOPE}"))["output_level"] == "debug"


async def test_change_affects_only_its_fields(site: Client) -> None:
    for body in (
        b'{"output_level":"warn"}',
        b'{"stack_trace_level":"error","output_level":""}',
        b'{"log_callers":true}',
        b"{}",
    ):
        assert await send(site, "PUT", f"/scopej/{SCOPE}", body) == (202, "")
    state = find_scope(SCOPE)
    assert state is not None
    assert state[2:] == ("warn", "error", True)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("no-such-scope", b"{}", "unknown scope name: no-such-scope\n"),
        ("a%0Ab", b"{}", "unknown scope name: a\\nb\n"),
        (SCOPE, b"", "unable to decode request: "),
        (SCOPE, b"{", "unable to decode request: "),
        (SCOPE, b"[]", "unable to decode request: "),
        (SCOPE, b'{"output_level":"\xff"}', "unable to decode request: "),
        (SCOPE, b'{"output_level":7}', "unable to decode request: "),
        (SCOPE, b'{"output_level":"loud"}', "output_level: 'loud' is not a log level: use debug, info,"),
        (SCOPE, b'{"output_level":"debug","stack_trace_level":"loud"}', "stack_trace_level: 'loud' is not a log level"),
    ],
)
async def test_invalid_change_is_rejected_with_a_message(site: Client, path: str, body: bytes, message: str) -> None:
    status, text = await send(site, "PUT", f"/scopej/{path}", body)
    assert status == 400
    assert text.startswith(message)
    assert text.count("\n") == 1
    assert await data(site, f"/scopej/{SCOPE}") == {
        "name": SCOPE,
        "description": "",
        "output_level": "info",
        "stack_trace_level": "none",
        "log_callers": False,
    }


async def test_unknown_scope_is_an_error(site: Client) -> None:
    assert await send(site, "GET", "/scopej/nothing") == (400, "unknown scope name: nothing\n")


async def test_large_body_is_rejected(site: Client) -> None:
    body = b'{"name":"' + b"a" * MAX_BODY_SIZE + b'","output_level":"debug"}'
    assert await send(site, "PUT", f"/scopej/{SCOPE}", body) == (
        413,
        f"the request body exceeds {MAX_BODY_SIZE} bytes\n",
    )
    assert (await data(site, f"/scopej/{SCOPE}"))["output_level"] == "info"


async def test_missing_body_times_out(site: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_module, "BODY_SECONDS", 0.0)
    assert site.port is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(f"PUT /scopej/{SCOPE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{{".encode())
    assert b" 408 " in await reader.readline()
    writer.close()


# -- the other topics --------------------------------------------------------------------------------------------------


async def test_home_data(site: Client) -> None:
    facts = await data(site, "/homej/")
    assert list(facts) == ["ProcessName", "HeapSize", "NumGC", "CurrentTime", "Hostname", "IP"]
    assert (facts["ProcessName"], facts["IP"]) == ("pilot-discovery", "127.0.0.1")


async def test_memory_data_and_forced_collection(site: Client) -> None:
    memory = await data(site, "/memj/")
    assert list(memory)[:4] == ["Alloc", "TotalAlloc", "Sys", "Lookups"]
    assert {"Mallocs", "HeapAlloc", "StackInuse", "NextGC", "PauseNs", "EnableGC", "BySize"} <= set(memory)
    assert 0 < memory["HeapAlloc"] <= memory["Sys"]
    assert memory["HeapObjects"] > 1000
    assert await send(site, "PUT", "/memj/forcecollection") == (202, "")
    assert (await data(site, "/memj/"))["NumGC"] > memory["NumGC"]


async def test_environment_is_sorted_and_redacted(site: Client) -> None:
    assert await data(site, "/envj/") == [
        {"name": "API_TOKEN", "value": HIDDEN},
        {"name": "HOME", "value": "/root"},
        {"name": "PROXY", "value": f"http://{HIDDEN}@proxy:3128"},
        {"name": "ZONE", "value": "<b>west</b>"},
    ]


async def test_process_data(site: Client) -> None:
    facts = await data(site, "/procj/")
    assert list(facts) == [
        "egid",
        "euid",
        "gid",
        "groups",
        "pid",
        "ppid",
        "uid",
        "wd",
        "hostname",
        "tempdir",
        "threads",
        "goroutines",
    ]
    assert facts["wd"] == str(pathlib.Path.cwd())
    assert min(facts["pid"], facts["threads"], facts["goroutines"]) >= 1


async def test_version_data(site: Client) -> None:
    assert await data(site, "/versionj/") == {
        "version": "1.2",
        "revision": "abc",
        "golang_version": "",
        "status": "Clean",
        "tag": "1.2",
    }


async def test_metric_families(site: Client) -> None:
    families = {family["name"]: family for family in await data(site, "/metricj/")}
    assert families["pilot_xds"]["type"] == "gauge"
    assert families["pilot_xds"]["metric"] == [{"name": "pilot_xds", "labels": {"version": "1.30"}, "value": "1"}]


# -- pages and commands ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", *(f"/{topic}z/" for topic in TOPICS), "/scopez"])
async def test_pages_link_to_each_other_and_hide_secrets(site: Client, path: str) -> None:
    async with site.get(path, allow_redirects=False) as response:
        assert (response.status, response.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        text = await response.text()
    assert all(f'href="/{topic}z/"' in text for topic in TOPICS)
    assert "MARKED" not in text
    assert "<b>west" not in text
    assert "a<b" not in text


async def test_scopes_page_selects_the_current_level(site: Client) -> None:
    set_output_level(SCOPE, "error")
    _, text = await send(site, "GET", "/scopez/")
    row = text.partition(f'data-scope="{SCOPE}" data-field="output_level">')[2].partition("</select>")[0]
    assert "<option selected>error</option>" in row
    assert row.count("selected") == 1


@pytest.mark.parametrize("topic", ["scope", "mem", "env", "proc", "version", "home", "metric"])
async def test_data_path_without_a_slash_is_redirected(site: Client, topic: str) -> None:
    async with site.get(f"/{topic}j", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (301, f"/{topic}j/")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/argj/"),
        ("GET", "/signalj/"),
        ("GET", "/x"),
        ("GET", "/a/b"),
        ("GET", "/memj/forcecollection"),
        ("GET", "/signalj/SIGUSR1"),
        ("PUT", "/signalj/SIGKILL"),
    ],
)
async def test_unknown_path_is_a_not_found_page(site: Client, process: ProcessRecorder, method: str, path: str) -> None:
    status, text = await send(site, method, path)
    assert (status, "Page not found" in text) == (404, True)
    assert process.stack_dumps == 0


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/scopej/"),
        ("DELETE", f"/scopej/{SCOPE}"),
        ("OPTIONS", f"/scopej/{SCOPE}"),
        ("POST", "/envj/"),
        ("GET", "/homej/exit"),
    ],
)
async def test_wrong_method_has_an_empty_response(
    site: Client, process: ProcessRecorder, method: str, path: str
) -> None:
    assert await send(site, method, path) == (405, "")
    assert not process.exit_event.is_set()


async def test_exit_follows_the_response(
    site: Client, process: ProcessRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application_module, "EXIT_SECONDS", 0.0)
    assert await send(site, "PUT", "/homej/exit") == (202, "")
    async with asyncio.timeout(30):
        await process.exit_event.wait()


@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_signal_dumps_stacks(site: Client, process: ProcessRecorder, method: str) -> None:
    assert await send(site, method, "/signalj/SIGUSR1") == (202, "")
    assert process.stack_dumps == 1


# -- secrets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "OTEL_EXPORTER_OTLP_HEADERS",
        "API_TOKEN",
        "DB_PASSWORD",
        "pgpwd",
        "CLIENT_SECRET",
        "AWS_ACCESS_KEY_ID",
        "KEY",
        "TLS_PRIVATE",
        "apiKey",
        "MY_CREDENTIALS",
        "AUTH",
    ],
)
def test_secret_variable_names_are_redacted(name: str) -> None:
    assert redacted_environment({name: "MARKED"}) == [{"name": name, "value": HIDDEN}]


@pytest.mark.parametrize(
    "value",
    # pragma: allowlist nextline secret
    ["-----BEGIN EC PRIVATE KEY-----\nMARKED", "eyJhbGciOiJub25lIn0.MARKED.MARKED", "Bearer MARKED"],
)
def test_secret_values_are_redacted_for_any_name(value: str) -> None:
    assert redacted_environment({"HARMLESS": value}) == [{"name": "HARMLESS", "value": HIDDEN}]


@pytest.mark.parametrize(
    ("name", "value"),
    [("POD_NAME", "istiod-1"), ("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("MONKEY", "banana"), ("TOKEN", "")],
)
def test_ordinary_values_are_not_redacted(name: str, value: str) -> None:
    assert redacted_environment({name: value}) == [{"name": name, "value": value}]


def test_secret_flag_values_are_redacted() -> None:
    arguments = redacted_arguments(ARGUMENTS)
    assert arguments == [
        "/bin/pilot-discovery",
        "discovery",
        f"--password={HIDDEN}",
        "--token",
        HIDDEN,
        "--domain",
        "a<b",
    ]


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost", True),
        ("localhost:9876", True),
        ("127.0.0.1:9876", True),
        ("[::1]:9876", True),
        ("10.1.2.3", True),
        ("", True),
        ("rebound.example:9876", False),
        ("rebound.example", False),
        ("127.0.0.1.example", False),
        ("localhost.example:80", False),
        ("[x]:1", False),
    ],
)
async def test_only_local_host_headers_are_accepted(site: Client, host: str, is_local: bool) -> None:
    async with site.get("/scopej/", headers={"Host": host}) as response:
        assert (response.status == 200) is is_local
        assert is_local or response.status == 403

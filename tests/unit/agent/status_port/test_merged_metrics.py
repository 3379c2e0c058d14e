"""The merge of metrics pages, and their targets."""

from __future__ import annotations

import json
import threading

import pytest

from pilot.agent.status_port.merged_metrics import MAX_PAGE_BYTES, RESERVED, MetricsTarget, merge_metrics, parse_targets
from tests.unit.agent.conftest import App


def fail(target: MetricsTarget, error: Exception) -> None:
    raise AssertionError(f"{target}: {error}")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", b"agent\n"),
        (b"a 1\nb 2\n", b"agent\na 1\nb 2\n"),
        (b"a 1\n# EOF\nb 2", b"agent\na 1\nb 2\n"),
        (b"# EOF \r\n", b"agent\n"),
        (b"# EOFS\n", b"agent\n# EOFS\n"),
        (b"x" * 65536 + b"# EOF\n", b"agent\n" + b"x" * 65536 + b"# EOF\n"),
    ],
)
def test_page_is_merged_without_its_eof_marker(app: App, body: bytes, expected: bytes) -> None:
    app.body = body
    assert (
        b"".join(
            merge_metrics(
                b"agent\n", [MetricsTarget("application", "127.0.0.1", app.port, "mine?a=b")], 2.5, lambda *_: None
            )
        )
        == expected
    )
    [(path, headers, _)] = app.requests
    assert (path, headers["accept"], headers["x-prometheus-scrape-timeout-seconds"]) == (
        "/mine?a=b",
        "text/plain;version=0.0.4;q=1.0,*/*;q=0.1",
        "2.5",
    )


def test_failed_scrape_is_reported_and_others_remain(app: App) -> None:
    app.status = 404
    failures: list[str] = []
    pages = [MetricsTarget(name, "127.0.0.1", app.port, "/") for name in ("envoy", "application")]
    assert list(
        merge_metrics(b"agent\n", pages, 1, lambda page, error: failures.append(f"{page.source}: {error}"))
    ) == [b"agent\n"]
    assert failures == ["envoy: status 404", "application: status 404"]


def test_pages_of_an_application_are_read_at_the_same_time_and_merged_in_order() -> None:
    """Release note multi-port-metrics-fanout."""
    apps = [App(), App()]
    both = threading.Barrier(2, timeout=30)
    for index, application in enumerate(apps):
        application.body, application.before = f"page{index} 1\n# EOF\n".encode(), both.wait
    pages = [MetricsTarget("application", "127.0.0.1", application.port, "/") for application in apps]
    try:
        assert b"".join(merge_metrics(b"agent\n", pages, 60, fail)) == b"agent\npage0 1\npage1 1\n"
    finally:
        for application in apps:
            application.stop()


def test_page_of_several_that_is_too_large_is_a_failure(app: App) -> None:
    """Release note multi-port-metrics-fanout."""
    app.body = b"a 1\n" * (MAX_PAGE_BYTES // 4 + 1)
    failures: list[str] = []
    pages = [MetricsTarget("application", "127.0.0.1", app.port, path) for path in ("/a", "/b")]
    lines = merge_metrics(b"agent\n", pages, 60, lambda page, error: failures.append(f"{page.path}: {error}"))
    assert b"".join(lines) == b"agent\n"
    assert failures == [f"{path}: the page is larger than 10485760 bytes" for path in ("/a", "/b")]


def test_invalid_scrape_annotations_are_rejected() -> None:
    assert sorted(RESERVED) == [15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090]
    for text, reason in (
        ("{", "is not JSON: "),
        ("[]", "is not an object"),
        ('{"port": 80}', ": 80 is not a port"),
        ('{"port": "x"}', ": 'x' is not a port"),
        ('{"port": "65536"}', ": '65536' is not a port"),
        ('{"port": "15090"}', ": port 15090 is reserved for the proxy"),
    ):
        with pytest.raises(
            ValueError,
            match=f"^variable ISTIO_PROMETHEUS_ANNOTATIONS {reason}|^variable ISTIO_PROMETHEUS_ANNOTATIONS{reason}",
        ):
            parse_targets(text, "127.0.0.1", 15020)
    assert parse_targets('{"port": "65535"}', "::1", 15020) == [MetricsTarget("application", "::1", 65535, "/metrics")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ('{"scrape": "false", "port": "9000"}', []),
        ('{"scrape": "true"}', [(80, "/metrics")]),
        ('{"scrape": "true", "port": "9000", "path": "/m"}', [(9000, "/m")]),
        ('{"targets": [{"port": "9000", "path": "/m"}, {"port": "9001"}]}', [(9000, "/m"), (9001, "/metrics")]),
    ],
)
def test_parsing_of_scrape_targets(text: str, expected: list[tuple[int, str]]) -> None:
    assert [(target.port, target.path) for target in parse_targets(text, "127.0.0.1", 15020)] == expected


@pytest.mark.parametrize("port", ["15090", "15020", "016000", "0", "http", "70000"])
def test_reserved_or_invalid_scrape_port_is_rejected(port: str) -> None:
    with pytest.raises(ValueError, match="variable ISTIO_PROMETHEUS_ANNOTATIONS"):
        parse_targets(json.dumps({"port": port}), "127.0.0.1", 16000)

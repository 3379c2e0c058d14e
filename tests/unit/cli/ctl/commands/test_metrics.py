"""pilotctl metrics queries Prometheus in a Pod or at an address."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import pytest

from testing.apiserver.server import ApiServer
from testing.servers.fixed_pages import FixedPages
from tests.unit.cli.ctl.commands.test_install import Shell

SELECTOR = 'reporter="destination",destination_workload=~"tea.*",destination_workload_namespace="shop"'


def answer(path: str) -> str:
    """Return the values of the workload tea in the namespace shop, and none of other workloads."""
    query = parse_qs(urlsplit(path).query)["query"][0]
    if SELECTOR not in query:
        values = ["NaN"] if "quantile" in query else []
    elif "quantile" in query:
        values = [str(1000 * float(query.partition("(")[2].partition(",")[0]))]
    else:
        values = ["0.25" if "response_code" in query else "2.5"]
    return json.dumps({"status": "success", "data": {"result": [{"value": [1, value]} for value in values]}})


@pytest.fixture
async def prometheus() -> AsyncIterator[FixedPages]:
    pages = FixedPages(answer)
    yield pages
    await asyncio.to_thread(pages.stop)


@pytest.fixture
async def shell(tmp_path: pathlib.Path, prometheus: FixedPages) -> AsyncIterator[Shell]:
    server = ApiServer()
    await server.start()
    metadata = {"name": "p-0", "namespace": "istio-system", "labels": {"app.kubernetes.io/name": "prometheus"}}
    server.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}})
    server.forwards.ports["istio-system", "p-0", 9090] = ("127.0.0.1", prometheus.server_port)
    yield Shell(server, tmp_path)
    await server.stop()


async def test_rates_and_latencies_of_each_workload_are_listed(shell: Shell, prometheus: FixedPages) -> None:
    result = await shell("metrics", "tea.shop", "cup", "-d", "2m")
    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["tea.shop", "2.500", "0.250", "500ms", "900ms", "990ms"],
        ["cup", "0.000", "0.000", "-", "-", "-"],
    ]
    assert all("%5B120s%5D" in path for _, path in prometheus.requests)
    result = await shell("metrics", "tea", "cup.bar", "-n", "shop")
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [
        ["tea.shop", "2.500"],
        ["cup.bar", "0.000"],
    ]
    words = ("metrics", "tea.shop", "--prometheus", f"127.0.0.1:{prometheus.server_port}", "-o", "json")
    (plain,) = json.loads((await shell(*words)).stdout)
    assert (plain["totalRPS"], plain["p99"]) == (2.5, 990.0)


async def test_errors_name_their_cause(shell: Shell, prometheus: FixedPages) -> None:
    assert (await shell("metrics", 'tea"}', "-o", "json")).exit_code == 2
    assert (await shell("metrics", "tea", "-d", "0s")).exit_code == 2
    prometheus.answer = lambda path: "hello"
    assert "is not Prometheus" in (await shell("metrics", "tea")).stderr
    assert "no running Pod in the namespace mesh" in (await shell("metrics", "tea", "-i", "mesh")).stderr

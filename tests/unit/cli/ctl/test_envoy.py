"""pilotctl commands that read an Envoy's config_dump, and their comparison with the control plane."""

from __future__ import annotations

import io
import json
import pathlib
import tarfile
from collections.abc import Callable
from typing import Any

import pytest

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.commands import bug_report, proxy_config
from pilot.cli.ctl.envoy import EnvoyDump, read_dump
from pilot.cli.pilotctl import main
from pilot.lib.xds_types import BY_SHORT_NAME

ADMIN = "type.googleapis.com/envoy.admin.v3"
CLUSTER = {"name": "outbound|80||tea.shop.svc.cluster.local", "type": "EDS", "connect_timeout": "10s"}
OURS = {"name": CLUSTER["name"], "type": "EDS", "connectTimeout": "10s"}
DUMP = {
    "configs": [
        {
            "@type": f"{ADMIN}.BootstrapConfigDump",
            "bootstrap": {
                "node": {"id": "sidecar~10.0.0.1~tea-1.shop~shop.svc.cluster.local", "metadata": {"MESH_ID": "m"}},
                "static_resources": {},
            },
        },
        {
            "@type": f"{ADMIN}.ClustersConfigDump",
            "dynamic_active_clusters": [{"cluster": {"@type": "x", **CLUSTER}}],
            "static_clusters": [{"cluster": {"name": "xds-grpc"}}],
        },
        {
            "@type": f"{ADMIN}.ListenersConfigDump",
            "dynamic_listeners": [{"name": "l", "active_state": {"listener": {"name": "l"}}}, {"name": "warm"}],
        },
        {"@type": f"{ADMIN}.SecretsConfigDump", "dynamic_warming_secrets": [{"name": "default"}]},
        {
            "@type": f"{ADMIN}.EcdsConfigDump",
            "ecds_filters": [{"ecds_filter": {"name": "lua", "typed_config": {"@type": "type.googleapis.com/x.Lua"}}}],
        },
    ]
}
SYNCZ = [{"proxy": "tea-1.shop", "resources": {BY_SHORT_NAME["cds"]: {"sent": "a", "acked": "a", "sentTime": "T"}}}]


@pytest.fixture
def dump_file(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(DUMP))
    return str(path)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Pages of a control plane, by path. A page that is an exception is raised."""
    responses: dict[str, Any] = {
        "version": "1",
        "metrics": "m",
        "debug/list": ["syncz", "adsz?push=true", "config_dump", "broken"],
        "debug/syncz": SYNCZ,
        "debug/broken": CommandError("it is broken"),
        "debug/authz": {},
        "debug/describe": {},
        "cds": [OURS],
        "lds": [],
        "rds": [],
        "nds": [],
    }

    def text(_: PageClient, path: str, **query: str) -> str:
        page = (
            responses[path]
            if path != "debug/config_dump"
            else {"configs": responses[query["types"]]}
            if "types" in query
            else {"key": KEY}
        )
        if isinstance(page, Exception):
            raise page
        return page if isinstance(page, str) else json.dumps(page)

    monkeypatch.setattr(PageClient, "text", text)
    return responses


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*words: str, status: int = 0) -> str:
        assert main(words) == status
        captured = capsys.readouterr()
        return captured.err if status else captured.out

    return run


# pragma: allowlist nextline secret
KEY = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----"


def test_dump_fields_are_camel_case_except_user_keys() -> None:
    dump = read_dump(json.dumps(DUMP), "here")
    assert dump.resources("cds", dynamic=True) == [{"@type": "x", **OURS}]
    assert dump.bootstrap()["node"]["metadata"] == {"MESH_ID": "m"}


def test_static_and_warming_resources_are_listed(run: Callable[..., str], dump_file: str) -> None:
    assert "xds-grpc" in run("proxy-config", "cluster", "--file", dump_file)
    assert "default" in run("proxy-config", "secrets", "--file", dump_file)
    assert run("proxy-config", "ecds", "--file", dump_file).splitlines()[2].split() == ["lua", "x.Lua", "-"]


def test_all_prints_a_table_per_kind(run: Callable[..., str], dump_file: str) -> None:
    text = run("proxy-config", "all", "--file", dump_file)
    assert [line for line in text.splitlines() if line in {name.upper() for name in proxy_config.KINDS}] == [
        n.upper() for n in proxy_config.KINDS
    ]
    assert set(json.loads(run("proxy-config", "all", "--file", dump_file, "-o", "json"))) == set(proxy_config.KINDS)


def test_bootstrap(run: Callable[..., str], dump_file: str) -> None:
    assert "MESH_ID" in run("proxy-config", "bootstrap", "--file", dump_file)
    run("proxy-config", "bootstrap", status=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        (
            "configs:\n- a: 1\n",
            "x is not a config_dump: it is not JSON, but YAML or another text; save one with",
        ),
        ("[]", "is not a config_dump"),
        ('{"configs": {}}', "is not a config_dump: it has no list named configs"),
    ],
)
def test_invalid_dump_file_is_rejected(
    run: Callable[..., str], tmp_path: pathlib.Path, text: str, message: str
) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    assert message in run("proxy-config", "clusters", "--file", str(path), status=1)


def test_proxy_status_of_one_proxy_by_type(run: Callable[..., str], pages: dict[str, Any]) -> None:
    text = run("proxy-status", "tea-1")
    assert text.splitlines()[2].split() == ["CDS", "SYNCED", "a", "a", "T"]


def test_equal_configuration_matches(run: Callable[..., str], pages: dict[str, Any], dump_file: str) -> None:
    pages["lds"] = [{"name": "l"}]
    assert run("proxy-status", "tea-1", "--file", dump_file) == (
        "Proxy tea-1.shop\nClusters Match\nListeners Match\nRoutes Match\n"
    )


def test_envoy_of_another_proxy_is_not_compared(run: Callable[..., str], pages: dict[str, Any], dump_file: str) -> None:
    pages["debug/syncz"] = [{"proxy": "cup-1.shop"}]
    error = run("proxy-status", "cup-1", "--file", dump_file, status=1)
    assert error == "Error: this Envoy belongs to the proxy tea-1.shop, not to cup-1.shop\n"
    error = run("proxy-config", "clusters", "cup-1", "--file", dump_file, status=1)
    assert error == "Error: this Envoy belongs to the proxy tea-1.shop, not to cup-1\n"


def test_envoy_of_another_cluster_is_not_compared(
    run: Callable[..., str], pages: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    pages["debug/syncz"] = [{"proxy": "tea-1.shop", "cluster_id": "west"}]
    node = {"id": "sidecar~10.0.0.1~tea-1.shop~shop.svc.cluster.local", "metadata": {"CLUSTER_ID": "east"}}
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"configs": [{"@type": f"{ADMIN}.BootstrapConfigDump", "bootstrap": {"node": node}}]}))
    error = run("proxy-status", "tea-1", "--file", str(path), status=1)
    assert error == "Error: this Envoy is in cluster east, and tea-1.shop is in cluster west\n"


def test_dump_without_node_id_is_not_compared(
    run: Callable[..., str], pages: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "dump.json"
    path.write_text('{"configs": []}')
    error = run("proxy-status", "tea-1", "--file", str(path), status=1)
    assert error == "Error: this Envoy does not report its node ID, so it cannot be compared with tea-1.shop\n"


def test_difference_runs_from_istiod_to_envoy(run: Callable[..., str], pages: dict[str, Any], dump_file: str) -> None:
    pages["cds"] = [OURS | {"connectTimeout": "1s"}]
    lines = run("proxy-status", "tea-1", "--file", dump_file).splitlines()
    assert lines[:4] == ["Proxy tea-1.shop", "Clusters Don't Match", "--- Istiod Clusters", "+++ Envoy Clusters"]
    assert [line.split() for line in lines if "connectTimeout" in line] == [
        ["-", '"connectTimeout":', '"1s",'],
        ["+", '"connectTimeout":', '"10s",'],
    ]


def test_sources_of_a_dump_are_mutually_exclusive(run: Callable[..., str], dump_file: str) -> None:
    assert "mutually exclusive" in run("proxy-config", "clusters", "--file", dump_file, "--envoy", "http://x", status=2)
    assert "specify PROXY" in run("proxy-config", "clusters", status=2)
    assert "specify the PROXY" in run("proxy-status", "--file", dump_file, status=2)


def test_invalid_log_level_is_rejected(run: Callable[..., str]) -> None:
    assert "invalid level 'loud'" in run(
        "proxy-config", "log", "--envoy", "127.0.0.1:1", "--level", "http:loud", status=1
    )


def test_version(run: Callable[..., str], pages: dict[str, Any]) -> None:
    assert run("version").splitlines()[1:] == ["control plane version: 1", "data plane version: unknown (1 proxy)"]
    assert "dataPlaneVersion" not in json.loads(run("version", "--no-remote", "-o", "json"))


def test_internal_debug_prints_pages_unchanged(run: Callable[..., str], pages: dict[str, Any]) -> None:
    assert json.loads(run("internal-debug", "/debug/syncz?x=1")) == SYNCZ
    assert run("internal-debug").splitlines() == pages["debug/list"]


def test_bug_report_skips_failed_pages_and_secrets(
    pages: dict[str, Any], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bug_report, "request_admin", lambda address, page: f"{address} {page} bearer abcdefgh")
    path = tmp_path / "report.tgz"
    assert main(["bug-report", "-o", str(path), "--envoy", "http://10.0.0.1:15000"]) == 0
    assert "missing: debug/broken.json: it is broken" in capsys.readouterr().err
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as archive:
        files = {
            entry.name.removeprefix("bug-report/"): (archive.extractfile(entry) or io.BytesIO()).read().decode()
            for entry in archive
        }
    assert {
        "version.txt",
        "metrics.txt",
        "debug/syncz.json",
        "proxies/tea-1.shop/config_dump.json",
        "envoys/10-0-0-1-15000/stats.txt",
    } <= set(files)
    assert not any("adsz" in name for name in files)  # this page triggers a push
    assert "MIIB" not in "".join(files.values())
    assert "abcdefgh" not in "".join(files.values())


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

"""Command line and bootstrap file of Envoy."""

from __future__ import annotations

import pathlib

import pytest

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.envoy.envoy_process import build_arguments, write_bootstrap
from pilot.lib.start_error import StartError
from pilot.settings.parse import load_sections
from tests.unit.agent.envoy.test_proxy_bootstrap import SETTINGS, make_context


def test_envoy_arguments() -> None:
    settings = load_sections(AgentSettings(), ("--proxyLogLevel", "info,misc:error", "--concurrency", "2"), {}).settings
    arguments = build_arguments(make_context({"drainDuration": "20s"}), settings)
    text = " ".join(arguments)
    for part in (
        "-c ./etc/istio/proxy/envoy-rev.json",
        "--drain-time-s 20",
        "-l info",
        "--component-log-level misc:error",
        "--concurrency 2",
    ):
        assert part in text
    assert "--concurrency" not in build_arguments(make_context({"concurrency": 0}), AgentSettings())


def test_custom_bootstrap_is_kept(tmp_path: pathlib.Path) -> None:
    custom = tmp_path / "own.json"
    custom.write_text("{}")
    context = make_context({"customConfigFile": str(custom)})
    write_bootstrap(context, {"node": {}})
    assert custom.read_text() == "{}"
    assert build_arguments(context, SETTINGS)[:2] == ["-c", str(custom)]


def test_unwritable_bootstrap_folder_is_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"cannot write Envoy's bootstrap .*/file/proxy/envoy-rev.json"):
        write_bootstrap(make_context({"configPath": str(tmp_path / "file" / "proxy")}), {})

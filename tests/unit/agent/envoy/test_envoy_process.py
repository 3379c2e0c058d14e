"""Command line and bootstrap file of Envoy."""

from __future__ import annotations

import json
import pathlib

import pytest

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.envoy.envoy_process import build_arguments, read_override, write_bootstrap
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
    write_bootstrap(context, SETTINGS.envoy, {"node": {}})
    assert custom.read_text() == "{}"
    assert build_arguments(context, SETTINGS)[:2] == ["-c", str(custom)]


def test_bootstrap_variable_overrides_the_custom_config_file() -> None:
    settings = load_sections(AgentSettings(), (), {"ISTIO_BOOTSTRAP": "/etc/own.json"}).settings
    assert build_arguments(make_context({"customConfigFile": "/etc/other.json"}), settings)[:2] == [
        "-c",
        "/etc/own.json",
    ]


def test_access_log_buffer_size_is_passed_to_envoy() -> None:
    """Release note 58651."""
    arguments = " ".join(build_arguments(make_context({"fileFlushMinSizeKb": 8, "fileFlushInterval": "5s"}), SETTINGS))
    assert "--file-flush-interval-msec 5000 --file-flush-min-size-kb 8" in arguments


@pytest.mark.parametrize(
    ("text", "host_ip", "address"),
    [
        ("tracer: $(HOST_IP):8126", "10.0.0.9", "10.0.0.9:8126"),
        ("tracer: $(HOST_IP):8126", "fd00::9", "[fd00::9]:8126"),
        ("tracer: '[$(HOST_IP)]:8126'", "fd00::9", "[fd00::9]:8126"),
        ('{"tracer": "$(HOST_IP):8126"}', "", ":8126"),
    ],
)
def test_bootstrap_override_is_merged_with_the_nodes_address(
    tmp_path: pathlib.Path, text: str, host_ip: str, address: str
) -> None:
    path = tmp_path / "override.yaml"
    path.write_text(text)
    settings = load_sections(AgentSettings(), (), {"ISTIO_BOOTSTRAP_OVERRIDE": str(path), "HOST_IP": host_ip}).settings
    arguments = build_arguments(make_context(), settings)
    assert json.loads(arguments[arguments.index("--config-yaml") + 1]) == {"tracer": address}


def test_unreadable_bootstrap_override_is_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "override.yaml"
    with pytest.raises(StartError, match=r"variable ISTIO_BOOTSTRAP_OVERRIDE: .*: No such file or directory"):
        read_override(str(path), "")
    path.write_text("- a list")
    with pytest.raises(StartError, match=r"variable ISTIO_BOOTSTRAP_OVERRIDE: .* is not an object"):
        read_override(str(path), "")


def test_unwritable_bootstrap_folder_is_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"cannot write Envoy's bootstrap .*/file/proxy/envoy-rev.json"):
        write_bootstrap(make_context({"configPath": str(tmp_path / "file" / "proxy")}), SETTINGS.envoy, {})

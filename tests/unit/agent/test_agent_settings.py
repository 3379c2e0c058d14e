"""Settings of the agent and of capture: documentation, and the flag and variable of each field."""

from __future__ import annotations

import pathlib
from operator import attrgetter
from typing import Any

import pytest

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.capture.capture_settings import CaptureSettings
from pilot.agent.proxy.effective_config import build_proxy_config, pod_sources
from pilot.lib.duration import Duration
from pilot.settings.declaration import declared
from pilot.settings.document import sections
from pilot.settings.parse import load_sections
from pilot.settings.without_effect import AGENT_FLAGS, AGENT_VARIABLES, paragraph, without_effect
from testing.rows import Rows

DOCS = pathlib.Path(__file__).parents[3] / "docs"
AGENT, CAPTURE = AgentSettings(), CaptureSettings()
SOURCES = [
    (kind, field, way)
    for kind in (AGENT, CAPTURE)
    for field in declared(kind)
    for way in (field.flag, field.env)
    if way
]
OTHERS = {
    bool: ("true", True),
    Duration: ("1h1m1s", Duration(3661 * 10**9)),
    tuple: ("a,b", ("a", "b")),
    int: ("77", 77),
    float: ("0.75", 0.75),
}


@pytest.mark.parametrize(("kind", "document"), [(AGENT, "agent.md"), (CAPTURE, "capture.md")])
def test_every_setting_is_documented(kind: Any, document: str) -> None:
    assert sections(kind) in (DOCS / document).read_text(encoding="utf-8")
    loaded = load_sections(kind, [], {})
    assert (loaded.settings, loaded.warnings) == (kind, [])


def test_variables_without_effect_are_documented() -> None:
    assert paragraph("Istio's agent", AGENT_VARIABLES) in (DOCS / "agent.md").read_text(encoding="utf-8")
    assert {d.env for d in declared(AGENT)} & AGENT_VARIABLES.keys() == set()
    assert without_effect({"JWT_POLICY": "first-party-jwt"}, AGENT_VARIABLES) == [
        "environment variable JWT_POLICY has no effect: the token is always read from the file of the projected volume"
    ]


def test_flags_without_effect_name_their_replacement() -> None:
    loaded = load_sections(AGENT, ["--discoveryAddress", "a:1", "--statusPort=1"], {}, without_effect=AGENT_FLAGS)
    assert loaded.settings == AGENT
    assert loaded.warnings == [
        "flag --discoveryAddress has no effect: set it in the ProxyConfig, for example with the variable "
        "PROXY_CONFIG='discoveryAddress: istiod.istio-system.svc:15012'",
        "flag --statusPort has no effect: set it in the ProxyConfig, for example with the variable "
        "PROXY_CONFIG='statusPort: 15020'",
    ]
    assert {d.flag for d in declared(AGENT)} & AGENT_FLAGS.keys() == set()


@pytest.mark.parametrize("flag", [flag for flag, text in AGENT_FLAGS.items() if "PROXY_CONFIG" in text])
def test_examples_for_flags_without_effect_are_valid(flag: str) -> None:
    example = AGENT_FLAGS[flag].partition("PROXY_CONFIG='")[2].removesuffix("'")
    assert build_proxy_config(pod_sources(example, {})).fields


def test_numbers_out_of_range_are_ignored_with_a_warning() -> None:
    assert load_sections(AGENT, [], {"ENVOY_STATUS_PORT": "-1", "SECRET_GRACE_PERIOD_RATIO": "5"}).warnings == [
        "environment variable ENVOY_STATUS_PORT is ignored: -1 is not between 0 and 65535",
        "environment variable SECRET_GRACE_PERIOD_RATIO is ignored: 5 is not between 0 and 1",
    ]


def test_flag_or_variable_sets_only_its_field() -> None:
    with Rows() as rows:
        for kind, field, way in SOURCES:
            with rows.row(way):
                text, value = (
                    ("false", False) if field.default is True else OTHERS.get(type(field.default), ("other", "other"))
                )
                argv, environ = ([f"--{way}={text}"], {}) if way == field.flag else ([], {way: text})
                loaded = load_sections(kind, argv, environ)
                assert loaded.warnings == []
                values = {other.path: attrgetter(".".join(other.path))(loaded.settings) for other in declared(kind)}
                assert values == {**{other.path: other.default for other in declared(kind)}, field.path: value}

"""Settings of the agent and of captures: documented as they are, and each flag and variable sets the field that declares it."""

from __future__ import annotations

import pathlib
from operator import attrgetter
from typing import Any

import pytest

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.capture.capture_settings import CaptureSettings
from pilot.lib.duration import Duration
from pilot.settings.declaration import declared
from pilot.settings.document import sections
from pilot.settings.parse import load_sections
from testing.rows import Rows

DOCS = pathlib.Path(__file__).parents[3] / "docs"
AGENT, CAPTURE = AgentSettings(), CaptureSettings()
WAYS = [(kind, one, way) for kind in (AGENT, CAPTURE) for one in declared(kind) for way in (one.flag, one.env) if way]
OTHERS = {
    bool: ("true", True),
    Duration: ("1h1m1s", Duration(3661 * 10**9)),
    tuple: ("a,b", ("a", "b")),
    int: ("77", 77),
    float: ("0.75", 0.75),
}


@pytest.mark.parametrize(("kind", "document"), [(AGENT, "agent.md"), (CAPTURE, "capture.md")])
def test_every_setting_is_in_the_document(kind: Any, document: str) -> None:
    assert sections(kind) in (DOCS / document).read_text(encoding="utf-8")
    loaded = load_sections(kind, [], {})
    assert (loaded.settings, loaded.warnings) == (kind, [])


def test_a_flag_or_a_variable_sets_only_its_field() -> None:
    with Rows() as rows:
        for kind, one, way in WAYS:
            with rows.row(way):
                text, value = (
                    ("false", False) if one.default is True else OTHERS.get(type(one.default), ("other", "other"))
                )
                argv, environ = ([f"--{way}={text}"], {}) if way == one.flag else ([], {way: text})
                loaded = load_sections(kind, argv, environ)
                assert loaded.warnings == []
                values = {each.path: attrgetter(".".join(each.path))(loaded.settings) for each in declared(kind)}
                assert values == {**{each.path: each.default for each in declared(kind)}, one.path: value}

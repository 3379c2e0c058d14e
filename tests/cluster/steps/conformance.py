"""The conformance suite of the Gateway API."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping
from typing import Any

import yaml

from tests.cluster.box.box import Box
from tests.cluster.gateway_api.suite import (
    BUILD,
    GATEWAY_PROFILES,
    ISTIO_ECHO,
    MESH_PROFILES,
    build_programs,
    run_in_box,
)


async def run_conformance(box: Box, channel: str) -> AsyncIterator[str]:
    """Run the suite with all features of a channel."""
    if not shutil.which("go"):
        yield "Go is not here: not tried"
        return
    profiles = [*GATEWAY_PROFILES, *(MESH_PROFILES if ISTIO_ECHO in os.environ else ())]
    build_programs()
    report = BUILD / f"{channel}.yaml"
    with report.with_suffix(".log").open("wb") as log:
        code = await run_in_box(box, channel, profiles, report, log=log)
    for profile in yaml.safe_load(report.read_text())["profiles"]:
        yield f"{profile['name']}: core {_passed(profile['core'])}, extended {_passed(profile.get('extended'))}"
    assert not code, f"see {report}"


def _passed(part: Mapping[str, Any] | None) -> str:
    if part is None:
        return "has no tests"
    statistics = part["statistics"]
    return f"{statistics['Passed']} of {sum(statistics.values())}"

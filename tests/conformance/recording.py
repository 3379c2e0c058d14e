"""Recordings of istiod: all resources sent to the proxies of a scenario.

A recording is stored as expected.json.xz, with each resource once. `python -m tests.conformance pack FOLDER` makes it from
expected.json, which has the resources of each proxy after each step: {proxy: {step: {"resources": {type: {name: resource}},
"events": [response]}}}. The step "" is the state before the first step. unstable.json beside it lists the resources that
istiod does not always send alike, as [proxy, step, type, name]; they are not compared.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
import pathlib
from typing import Any

from tests.conformance.resources import in_order

Resources = dict[str, dict[str, Any]]
"""Resources by the short name of their type, and by name."""
PACKED, RAW, UNSTABLE = "expected.json.xz", "expected.json", "unstable.json"


@dataclasses.dataclass
class State:
    """Resources that a proxy had after a step, and the number of responses that the step caused."""

    resources: Resources
    responses: int


@dataclasses.dataclass
class Recording:
    """States by proxy and step, and resources to leave out, as (proxy, step, type, name)."""

    states: dict[tuple[str, str], State]
    unstable: set[tuple[str, str, str, str]]


def load_recording(folder: pathlib.Path) -> Recording | None:
    """Read the recording of a scenario, or return None if there is none."""
    if (folder / PACKED).exists():
        return _unpack(json.loads(lzma.decompress((folder / PACKED).read_bytes())))
    if (folder / RAW).exists():
        return _load_raw(folder)
    return None


def pack(folder: pathlib.Path) -> None:
    """Replace expected.json and unstable.json of a scenario by expected.json.xz."""
    text = json.dumps(_pack(_load_raw(folder)), indent=1, sort_keys=True).encode()
    (folder / PACKED).write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    (folder / RAW).unlink()
    (folder / UNSTABLE).unlink(missing_ok=True)


def _load_raw(folder: pathlib.Path) -> Recording:
    states = {
        (proxy, step): State(
            {
                kind: {name: in_order(value) for name, value in rows.items()}
                for kind, rows in state["resources"].items()
            },
            len(state["events"]) if step else 0,
        )
        for proxy, steps in json.loads((folder / RAW).read_text("utf-8")).items()
        for step, state in steps.items()
    }
    unstable = folder / UNSTABLE
    rows = json.loads(unstable.read_text("utf-8")) if unstable.exists() else []
    return Recording(states, {(proxy, step, kind, name) for proxy, step, kind, name in rows})


def _pack(recording: Recording) -> dict[str, Any]:
    """Write each resource once, with the states that have it."""
    places: dict[tuple[str, str, str], list[list[str]]] = {}
    for (proxy, step), state in recording.states.items():
        for kind, resources in state.resources.items():
            for name, resource in resources.items():
                places.setdefault((kind, name, json.dumps(resource, sort_keys=True)), []).append([proxy, step])
    packed: dict[str, Any] = {}
    for (kind, name, text), states in places.items():
        entry = {"states": states, "resource": json.loads(text)}
        packed.setdefault(kind, {}).setdefault(name, []).append(entry)
    return {
        "states": [
            {"proxy": proxy, "step": step, "types": sorted(state.resources), "responses": state.responses}
            for (proxy, step), state in recording.states.items()
        ],
        "unstable": sorted(recording.unstable),
        "resources": packed,
    }


def _unpack(plain: dict[str, Any]) -> Recording:
    states = {
        (row["proxy"], row["step"]): State({kind: {} for kind in row["types"]}, row["responses"])
        for row in plain["states"]
    }
    for kind, resources in plain["resources"].items():
        for name, entries in resources.items():
            for entry in entries:
                for proxy, step in entry["states"]:
                    states[proxy, step].resources[kind][name] = entry["resource"]
    return Recording(states, {(proxy, step, kind, name) for proxy, step, kind, name in plain["unstable"]})

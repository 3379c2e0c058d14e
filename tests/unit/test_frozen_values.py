"""What nodes of the graph keep and compare never changes under them: configuration, what is derived from it, and settings are frozen."""
from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect
import pytest

import pilot.model
import pilot.model.config
import pilot.settings
from pilot.model.config.base import Int32, Int64, Strict, UInt32, UInt64


def classes(package: str, path: list[str]) -> Iterator[type]:
    for found in pkgutil.walk_packages(path, f"{package}."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            yield from (value for value in vars(module).values() if inspect.isclass(value) and value.__module__ == module.__name__)


def test_what_objects_say_and_what_follows_from_it_is_frozen() -> None:
    structs = [kind for kind in classes("pilot.model", pilot.model.__path__) if issubclass(kind, msgspec.Struct)]
    assert len(structs) >= 350
    assert [f"{kind.__module__}.{kind.__name__}" for kind in structs if not kind.__struct_config__.frozen] == []


def test_settings_are_frozen() -> None:
    sections = [kind for kind in classes("pilot.settings", pilot.settings.__path__) if dataclasses.is_dataclass(kind)]
    assert len(sections) >= 20
    assert [kind.__name__ for kind in sections if not kind.__dataclass_params__.frozen] == []


def test_what_a_message_of_istio_does_not_say_is_what_protobuf_takes_it_for() -> None:
    own_defaults = ("MeshConfig", "ProxyConfig")
    found = classes("pilot.model.config", pilot.model.config.__path__)
    messages = [kind for kind in found if issubclass(kind, Strict) and kind.__name__ not in own_defaults]
    others = []
    for kind in messages:
        for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
            default = field.default
            if isinstance(default, int | float | str) and not isinstance(field.type, msgspec.inspect.LiteralType) and default:
                others.append(f"{kind.__name__}.{field.name} {default!r}")
    assert len(messages) > 150
    assert others == []


@pytest.mark.parametrize(
    ("kind", "low", "high"), [(Int32, -(2**31), 2**31 - 1), (Int64, -(2**63), 2**63 - 1), (UInt32, 0, 2**32 - 1), (UInt64, 0, None)]
)
def test_numbers_have_the_bounds_of_protobuf(kind: Any, low: int, high: int | None) -> None:
    bounds = msgspec.inspect.type_info(kind)
    assert (bounds.ge, bounds.le) == (low, high)  # type: ignore[attr-defined]

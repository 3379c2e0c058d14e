"""Agreement of the slow walk that reports problems with the fast conversion for random data."""

from __future__ import annotations

import copy
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect as mi

from pilot.config.catalogue import CATALOGUE
from pilot.config.kind import AnyKind
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.ingest import shape
from pilot.ingest.decode import decode_document

SPECS = [*(pytest.param(kind.struct, id=str(kind.id)) for kind in CATALOGUE), MeshConfig, MeshNetworks]
ANYTHING: list[Any] = [
    None,
    True,
    0,
    -1,
    2**40,
    1.5,
    float("nan"),
    "",
    "x",
    "1s",
    "é",
    [],
    [None],
    {},
    {"x": None},
    {"x": {}},
    {1: 2},
]


def random_value(kind: mi.Type, random: random.Random, depth: int) -> Any:
    """Return random data of a type."""
    match kind:
        case mi.StructType():
            fields = random.sample(kind.fields, min(len(kind.fields), random.randint(0, 3 if depth else 6)))
            groups = getattr(kind.cls, "groups", ())
            used_groups: set[tuple[str, ...]] = set()
            data = {}
            for field in fields:
                group = next((g for g in groups if field.name in g), None)
                if group is None or group not in used_groups:
                    data[field.encode_name] = random_value(field.type, random, depth + 1)
                    used_groups |= {group} if group is not None and data[field.encode_name] is not None else set()
            return data
        case mi.VarTupleType():
            return [random_value(kind.item_type, random, depth + 1) for _ in range(random.randint(0, 2))]
        case mi.DictType():
            keys = ["80", "443"] if isinstance(kind.key_type, mi.IntType) else ["a", "x-b.c"]
            return {key: random_value(kind.value_type, random, depth + 1) for key in keys[: random.randint(0, 2)]}
        case mi.UnionType():
            return random_value(random.choice(kind.types), random, depth)
        case mi.LiteralType():
            return random.choice(kind.values)
        case mi.CustomType():
            return random.choice(["1s", "1.5ms", "0s"])
        case mi.BoolType():
            return random.random() < 0.5
        case mi.IntType():
            return random.choice([0, 1, 80, 65535])
        case mi.FloatType():
            return random.choice([0, 1, 0.5, 100.0])
        case mi.BytesType():
            return random.choice(["", "aGVsbG8="])
        case mi.NoneType():
            return None
    return random.choice(["", "a", "a.b", "10.0.0.1", "v1"])


def corrupt(value: Any, random: random.Random) -> Any:
    """Return the data with one random part replaced."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        if random.random() < 0.1:
            return {**value, "nobodyKnows": 1}
        return {**value, key: corrupt(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        index = random.randrange(len(value))
        return [*value[:index], corrupt(value[index], random), *value[index + 1 :]]
    return copy.deepcopy(random.choice(ANYTHING))


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=25)
@given(random=st.randoms(use_true_random=False))
def test_valid_data_is_accepted(spec: type[msgspec.Struct], random: random.Random) -> None:
    value = random_value(mi.type_info(spec), random, 0)
    decoded, problems = shape.decode(value, spec)
    assert problems == []
    assert isinstance(decoded, spec)


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=25)
@given(random=st.randoms(use_true_random=False))
def test_problems_agree_with_the_conversion(spec: type[msgspec.Struct], random: random.Random) -> None:
    value = corrupt(random_value(mi.type_info(spec), random, 0), random)
    plain, problems = shape.checked(value, spec)
    try:
        msgspec.convert(plain, spec, str_keys=True, dec_hook=shape.decode_extension)
        valid = True
    except msgspec.ValidationError:
        valid = False
    assert valid == (problems == [])
    decoded, decode_problems = shape.decode(value, spec)
    assert (decoded is not None, decode_problems) == (valid, problems)


@pytest.mark.parametrize("kind", [pytest.param(kind, id=str(kind.id)) for kind in CATALOGUE])
@settings(max_examples=25)
@given(random=st.randoms(use_true_random=False))
def test_decoding_never_raises(kind: AnyKind, random: random.Random) -> None:
    body = corrupt(random_value(mi.type_info(kind.struct), random, 0), random)
    version = f"{kind.id.group}/{kind.versions[0]}".removeprefix("/")
    whole = {part: body.pop(part) for part in kind.parts if isinstance(body, dict) and part in body}
    decoded = decode_document(
        {"apiVersion": version, "kind": kind.id.name, "metadata": {"name": "a"}, "spec": body, **whole}
    )
    assert bool(decoded.entries) != any(problem.severity == "error" for problem in decoded.problems)

"""Admission of invalid objects. `/validate` rejects all of them and names the path; the schemas of the CRDs reject some."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from deploy.crd.definitions import definitions
from pilot.config.catalogue import CATALOGUE
from testing.apiserver.schemas import schema_violations
from testing.rows import Rows
from testing.tables.invalid_objects import InvalidObject, load_invalid_objects
from webhook.server.review import AdmissionRequest
from webhook.server.validator import validate

SCHEMAS = {d["spec"]["names"]["kind"]: d["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for d in definitions()}


def as_json(bad: InvalidObject) -> dict[str, Any] | None:
    """Return the object as kubectl sends it, or None if it cannot be sent or is not an Istio object."""
    try:
        plain = json.loads(json.dumps(yaml.safe_load(bad.text), allow_nan=False))
    except (yaml.YAMLError, ValueError):
        return None
    return (
        plain
        if isinstance(plain, dict) and "istio.io/" in str(plain.get("apiVersion")) and plain.get("kind") in SCHEMAS
        else None
    )


OBJECTS = [(bad, plain) for bad in load_invalid_objects() if (plain := as_json(bad)) is not None]
REJECTED = [
    (bad, plain)
    for bad, plain in OBJECTS
    if bad.code != "unknown-version" and (not bad.warns or (bad.code == "unknown-field" and ".value." not in bad.path))
]
MIN_REJECTED_BY_SCHEMA = 80
"""Minimum number of objects rejected by a schema or one of its rules. It guards against schemas that become weaker."""


def plain_path(text: str) -> str:
    return re.sub(r"\[([a-zA-Z][^\]]*)\]", r".\1", text)


def test_webhook_rejects_invalid_objects_with_their_path() -> None:
    assert len(REJECTED) > 150
    with Rows() as rows:
        for bad, plain in REJECTED:
            with rows.row(bad.name):
                verdict = validate(AdmissionRequest(operation="CREATE", object=json.dumps(plain).encode()), CATALOGUE)
                assert not verdict.answer.allowed
                assert bad.path in verdict.answer.message


def test_schemas_reject_only_invalid_objects_near_their_path() -> None:
    rejected = 0
    for bad, plain in OBJECTS:
        places = [path for path, _ in schema_violations(plain, SCHEMAS[plain["kind"]])]
        assert not (places and bad.warns), bad.name
        assert not places or any(is_near(plain_path(bad.path), path) for path in places), (bad.name, bad.path, places)
        rejected += bool(places)
    assert rejected >= MIN_REJECTED_BY_SCHEMA


def is_near(path: str, where: str) -> bool:
    """Return whether one path contains the other or both are siblings, such as a required field and its alternative."""
    return path.startswith(where) or where.startswith(path) or path.rpartition(".")[0] == where.rpartition(".")[0]

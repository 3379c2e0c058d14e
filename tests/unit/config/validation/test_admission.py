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
from testing.tables.invalid_objects import Bad, bad_objects
from webhook.server.review import AdmissionRequest
from webhook.server.validator import validate

SCHEMAS = {d["spec"]["names"]["kind"]: d["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for d in definitions()}


def as_json(bad: Bad) -> dict[str, Any] | None:
    """Returns the object of a text as kubectl sends it, None where it cannot be sent or: expected one of Istio's."""
    try:
        plain = json.loads(json.dumps(yaml.safe_load(bad.text), allow_nan=False))
    except (yaml.YAMLError, ValueError):
        return None
    return (
        plain
        if isinstance(plain, dict) and "istio.io/" in str(plain.get("apiVersion")) and plain.get("kind") in SCHEMAS
        else None
    )


OBJECTS = [(bad, plain) for bad in bad_objects() if (plain := as_json(bad)) is not None]
REFUSED = [(bad, plain) for bad, plain in OBJECTS if not bad.warns and bad.code != "unknown-version"]
BY_SCHEMA = 80
"""So many of them break a schema or a rule of one; a schema that says less than before is a mistake."""


def plain_path(text: str) -> str:
    return re.sub(r"\[([a-zA-Z][^\]]*)\]", r".\1", text)


def test_the_webhook_rejects_an_invalid_object_and_names_the_path() -> None:
    assert len(REFUSED) > 150
    with Rows() as rows:
        for bad, plain in REFUSED:
            with rows.row(bad.name):
                verdict = validate(AdmissionRequest(operation="CREATE", object=json.dumps(plain).encode()), CATALOGUE)
                assert not verdict.answer.allowed
                assert bad.path in verdict.answer.message


def test_schemas_refuse_at_the_path_or_above_it_and_nothing_that_goes_in() -> None:
    refused = 0
    for bad, plain in OBJECTS:
        places = [where for where, _ in schema_violations(plain, SCHEMAS[plain["kind"]])]
        assert not (places and bad.warns), bad.name
        assert not places or any(near(plain_path(bad.path), where) for where in places), (bad.name, bad.path, places)
        refused += bool(places)
    assert refused >= BY_SCHEMA


def near(path: str, where: str) -> bool:
    """Returns whether one of two places is in the other, or they are side by side: a field that must be there instead of another one."""
    return path.startswith(where) or where.startswith(path) or path.rpartition(".")[0] == where.rpartition(".")[0]

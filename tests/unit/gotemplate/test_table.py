"""Results of Go's text/template with Sprig, with one template per row in the files of template_table/.

The results were recorded by a Go program that executes each template with the data below.
"""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any

import pytest

from gotemplate import TemplateError, go_yaml, parse
from gotemplate.function import takes
from gotemplate.functions import SPRIG
from gotemplate.values import StringList, StringMap
from testing.rows import Rows

FOLDER = pathlib.Path(__file__).parent / "template_table"
TABLE = [row for path in sorted(FOLDER.glob("*.json")) for row in json.loads(path.read_text("utf-8"))]
FUNCTIONS = {**SPRIG, "toYaml": takes("any", go_yaml.dump)}


def data() -> dict[str, Any]:
    return {
        "x": 1,
        "l": [1, 2, 3],
        "n": None,
        "f": 15020.0,
        "m": {"b": 2, "a": 1},
        "e": [],
        "s": "text",
        "words": StringList(["b", "a"]),
        "texts": StringMap(k="v"),
        "deep": {"a": {"b": "c"}},
        "neg": -3,
        "pi": 3.14159,
        "t": True,
        "mixed": ["a", None, 1.5, True, {"z": None}],
    }


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def execute(template: str) -> dict[str, str]:
    try:
        return {"output": parse("t", template, FUNCTIONS).execute(data())}
    except TemplateError as error:
        return {"error": str(error)}


def test_results_equal_those_of_go() -> None:
    with Rows() as rows:
        for row in TABLE:
            with rows.row(row["template"]):
                assert {"template": row["template"], **execute(row["template"])} == row


def test_table_covers_the_functions() -> None:
    """The table omits functions with random or network results, and some aliases."""
    text = " ".join(row["template"] for row in TABLE)
    uncovered = {
        name for name in SPRIG if f"{name} " not in text and f"{name})" not in text and f"{name}}}" not in text
    }
    assert uncovered <= {
        "ago",
        "bcrypt",
        "buildCustomCert",
        "call",
        "decryptAES",
        "derivePassword",
        "encryptAES",
        "env",
        "expandenv",
        "genCA",
        "genCAWithKey",
        "genPrivateKey",
        "genSelfSignedCert",
        "genSelfSignedCertWithKey",
        "genSignedCert",
        "genSignedCertWithKey",
        "getHostByName",
        "htpasswd",
        "must_date_modify",
        "now",
        "randAlpha",
        "randAlphaNum",
        "randAscii",
        "randBytes",
        "randInt",
        "randNumeric",
        "shuffle",
        "uuidv4",
        "mustSlice",
        "mustPush",
        "mustPrepend",
        "mustFromJson",
    }

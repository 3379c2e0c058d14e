"""Comparison of workloads that `pilotctl kube-inject` injects with those of istioctl.

cases.json in the folder of --cases has a list `cases`. A case has an input file `in` and the injected file `want`, or an error
message `expectedError`. `operator`, `set`, `meshConfig` and `env` are its injection settings, and `expectedLog` a
warning. Cases with `webhookOnly` are skipped.

Files are compared as objects. Nulls and empty values are left out where they have no meaning, JSON in annotations and variables
is parsed, and the order of variables is ignored unless one refers to another.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import yaml

from tests.conformance.command import run_pilotctl
from tests.conformance.scenario import Plain

MEANINGFUL_IF_EMPTY = {"emptyDir", "securityContext", "podSelector", "selector"}
VERSION = re.compile(r'"version":"[0-9a-f]+",?')
"""The hash of the templates, which differ."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", help="compare cases whose names contain one of these words")
    parser.add_argument("--cases", type=pathlib.Path, required=True, help="a folder of cases")
    parser.add_argument("--jobs", type=int, default=2, help="cases that run at the same time")


def run(options: argparse.Namespace) -> bool:
    """Compare cases, print a line each and the total, and return whether all are equal."""
    folder = options.cases.resolve()
    cases = json.loads((folder / "cases.json").read_text("utf-8"))["cases"]
    cases = [case for case in cases if not case.get("webhookOnly")]
    cases = [case for case in cases if not options.words or any(word in case["want"] for word in options.words)]
    equal = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, rows in zip(cases, pool.map(lambda case: compare_case(case, folder), cases), strict=True):
            equal += not rows
            print(f"{case['want']:60} {f'{len(rows)} differences' if rows else 'equal'}", flush=True)
            for row in rows if options.verbose else []:
                print("  ", row)
    print(f"injection: {equal} of {len(cases)} cases are equal")
    return bool(cases) and equal == len(cases)


def compare_case(case: Plain, folder: pathlib.Path) -> list[str]:
    """Inject the workloads of a case and return how they differ."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as settings:
        yaml.safe_dump(_istio_operator(case, folder), settings, sort_keys=False)
        settings.flush()
        arguments = ["kube-inject", "--filename", str(folder / case["in"]), "--operatorFileName", settings.name]
        try:
            result = run_pilotctl(arguments, folder, case.get("env"))
        except subprocess.TimeoutExpired as error:
            return [str(error)]
    if words := case.get("expectedError"):
        if result.returncode == 0:
            return [f"no error, expected one with {words!r}"]
        return [] if words in result.stderr.lower() else [f"the error message lacks {words!r}: {result.stderr[-200:]}"]
    if result.returncode:
        return [f"exit {result.returncode}: {result.stderr.strip()[-300:]}"]
    rows = []
    if case.get("expectedLog") and case["expectedLog"] not in result.stderr:
        rows.append(f"no warning with {case['expectedLog']!r}")
    expected, actual = _documents((folder / case["want"]).read_text("utf-8")), _documents(result.stdout)
    if len(expected) != len(actual):
        return [*rows, f"{len(actual)} objects, expected {len(expected)}"]
    for number, sides in enumerate(zip(expected, actual, strict=True)):
        rows += differences(f"[{number}]", *sides)
    return rows


def differences(path: str, expected: Any, actual: Any) -> Iterator[str]:
    """Yield the paths at which two values differ."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in {**expected, **actual}:
            yield from differences(f"{path}.{name}", expected.get(name), actual.get(name))
    elif _is_named(expected) and _is_named(actual):
        orders = [[item["name"] for item in side] for side in (expected, actual)]
        if orders[0] != orders[1] and not path.endswith(".env"):
            yield f"{path}: expected order {orders[0]}, got {orders[1]}"
        sides = [{item["name"]: item for item in side} for side in (expected, actual)]
        for name in {**sides[0], **sides[1]}:
            yield from differences(f"{path}[{name}]", sides[0].get(name), sides[1].get(name))
    elif expected != actual:
        yield f"{path}: expected {json.dumps(expected)[:160]}, got {json.dumps(actual)[:160]}"


def _is_named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) and "name" in item for item in value)


def _documents(text: str) -> list[Any]:
    return [_comparable(document) for document in yaml.load_all(text, _LOADER) if document]


def _comparable(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        fields = {name: _comparable(field, name) for name, field in value.items()}
        return {k: v for k, v in fields.items() if v is not None and (v not in ({}, []) or k in MEANINGFUL_IF_EMPTY)}
    if isinstance(value, list):
        items = [_comparable(item) for item in value]
        if key == "env" and not any("$(" in str(item.get("value", "")) for item in items if isinstance(item, dict)):
            items.sort(key=lambda item: str(item.get("name", "")))
        return items
    if isinstance(value, str) and value[:1] in ("{", "[") and value[-1:] in ("}", "]"):
        try:
            return _comparable(json.loads(VERSION.sub("", value)))
        except ValueError:
            return value
    return value


def _istio_operator(case: Plain, folder: pathlib.Path) -> Plain:
    """Return the settings of a case: its file, its `path=value` settings and its mesh config, over the defaults."""
    spec: Plain = {"hub": "registry.istio.io/testing", "tag": "latest"}
    if case.get("operator"):
        spec = _merge(spec, yaml.load((folder / case["operator"]).read_text("utf-8"), _LOADER)["spec"])
    for flag in case.get("set", []):
        path, _, text = flag.partition("=")
        value: Any = yaml.load(text, _LOADER) if re.fullmatch(r"true|false|\d+", text) else text
        for key in reversed(path.split(".")):
            value = {key: value}
        spec = _merge(spec, value)
    if case.get("meshConfig"):
        spec = _merge(spec, {"meshConfig": yaml.load(case["meshConfig"], _LOADER)})
    head = {"apiVersion": "install.istio.io/v1alpha1", "kind": "IstioOperator", "metadata": {"name": "case"}}
    return {**head, "spec": spec}


def _merge(base: Plain, over: Plain) -> Plain:
    merged = dict(base)
    for name, value in over.items():
        merged[name] = (
            _merge(merged[name], value) if isinstance(value, dict) and isinstance(merged.get(name), dict) else value
        )
    return merged

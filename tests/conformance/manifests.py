"""Comparison of the objects that `pilotctl manifest generate` renders with those of istioctl.

A case is NAME.yaml, an IstioOperator, and NAME.effects.json:
    args     further arguments
    exit     0, or 1 for invalid settings; `error` then has words, in lower case, of a good error message
    objects  the rendered objects as Kind/namespace/name
    effects  [object, path, value]: leaves that the settings change. A null value: there is no such leaf

A case passes if the objects are exactly these and every effect is present. The objects of our charts and of istioctl's have the
same kinds, names, labels, container, port, volume and variable names, and the same values of fields that settings influence.
Everything else may differ, so only effects are compared.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from tests.conformance.command import run_pilotctl
from tests.conformance.scenario import Plain

CASES = pathlib.Path(__file__).parent / "manifests"
EFFECTS = ".effects.json"
DEFAULTS = "istioctl-defaults.yaml"
"""The registry and tag in the profiles of the istioctl that rendered the recordings."""
CHART_TEMPLATES = {
    "sidecar",
    "gateway",
    "grpc-simple",
    "grpc-agent",
    "waypoint",
    "kube-gateway",
    "agentgateway",
    "agentgateway-waypoint",
}
"""Injection templates of the charts, which are not compared."""
CHART_LABELS = (
    "labels.helm.sh/chart",
    "labels.app.kubernetes.io/version",
    "labels.app.kubernetes.io/managed-by",
    "labels.chart",
    "labels.heritage",
)
"""Labels that identify a chart, which are not compared."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Outcome(NamedTuple):
    """Numbers of equal effects and of all effects, and the errors."""

    equal: int
    effects: int
    errors: list[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", help="compare cases whose names contain one of these words")
    parser.add_argument("--cases", type=pathlib.Path, default=CASES, help="a folder of cases")
    parser.add_argument("--jobs", type=int, default=2, help="cases that run at the same time")


def run(options: argparse.Namespace) -> bool:
    """Compare cases, print a line each and the totals, and return whether all pass."""
    folder = options.cases.resolve()
    names = sorted(path.name.removesuffix(EFFECTS) for path in folder.glob(f"*{EFFECTS}"))
    names = [name for name in names if not options.words or any(word in name for word in options.words)]
    passed = equal = effects = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, outcome in zip(names, pool.map(lambda name: compare_case(name, folder), names), strict=True):
            passed += not outcome.errors
            equal, effects = equal + outcome.equal, effects + outcome.effects
            verdict = f"{len(outcome.errors)} errors" if outcome.errors else "passes"
            print(f"{name:40} {outcome.equal:4} of {outcome.effects:<4} effects   {verdict}", flush=True)
            for line in outcome.errors:
                print("  ", line)
    print(f"manifests: {passed} of {len(names)} cases pass; {equal} of {effects} effects are equal")
    return bool(names) and passed == len(names)


def compare_case(name: str, folder: pathlib.Path) -> Outcome:
    """Render the objects of a case and compare them."""
    expected = json.loads((folder / f"{name}{EFFECTS}").read_text("utf-8"))
    effects = expected.get("effects", [])
    try:
        result = run_pilotctl(
            ["manifest", "generate", "-f", str(CASES / DEFAULTS), "-f", f"{name}.yaml", *expected.get("args", [])],
            folder,
        )
    except subprocess.TimeoutExpired as error:
        return Outcome(0, len(effects), [str(error)])
    if expected["exit"]:
        return Outcome(0, 0, _check_error(expected["error"], result.returncode, result.stderr.strip()))
    if result.returncode:
        return Outcome(0, len(effects), [f"exit {result.returncode}: {result.stderr.strip()[-300:]}"])
    try:
        objects = {
            _key_of(o): o for o in yaml.load_all(result.stdout, _LOADER) if isinstance(o, dict) and o.get("kind")
        }
    except yaml.YAMLError as error:
        return Outcome(0, len(effects), [f"not YAML: {error}"])
    return compare_objects(objects, expected["objects"], effects)


def compare_objects(objects: dict[str, Plain], names: Sequence[str], effects: Sequence[Any]) -> Outcome:
    """Compare rendered objects with their expected names, and with the effects on them."""
    errors = [f"missing {name}" for name in names if name not in objects]
    errors += [f"surplus {name}" for name in sorted(objects.keys() - set(names))]
    leaves = {name: leaves_of(objects[name]) for name in {effect[0] for effect in effects} & objects.keys()}
    equal = 0
    for name, path, value in effects:
        if name not in leaves:
            continue
        actual = leaves[name].get(path)
        if _is_absent(path, leaves[name]) if value is None else _is_same(path, value, actual):
            equal += 1
        else:
            texts = (json.dumps(side, default=str)[:200] for side in (value, actual))
            errors.append("{} {}: expected {}, got {}".format(name, path, *texts))
    return Outcome(equal, len(effects), errors)


def leaves_of(o: Plain) -> dict[str, Any]:
    """Return the leaves of an object that are compared, by their paths.

    List items with a name, containerPort or key are addressed by it, other items by their position. Arguments of containers
    are [--flag] = value, and rules of Roles [group/resource] = sorted verbs. Nulls and empty values are left out, except for
    an emptyDir. CRDs and the rules of ClusterRoles have no leaves. The YAML texts in istiod's ConfigMaps are parsed.
    """
    kind = o["kind"]
    if kind == "CustomResourceDefinition":
        return {}
    leaves: dict[str, Any] = {}
    if kind == "ConfigMap":
        o = {**o, "data": _config_map_data(o.get("data") or {})}
    if kind in ("Role", "ClusterRole"):
        o = dict(o)
        rules = o.pop("rules", None) or []
        if kind == "Role":
            leaves = {f"rules[{name}]": verbs for name, verbs in _verbs(rules).items()}
    _add_leaves("", {name: value for name, value in o.items() if name not in ("apiVersion", "kind")}, leaves)
    return {
        path: value
        for path, value in leaves.items()
        if not path.endswith(CHART_LABELS) and not (kind == "Service" and path.endswith(".protocol") and value == "TCP")
    }


def _check_error(words: str, exit_code: int, message: str) -> list[str]:
    if exit_code == 0:
        return [f"no error, expected one with {words!r}"]
    missing = [word for word in words.split() if word not in message.lower()]
    return [f"the error message lacks {' '.join(missing)!r}: {message[-300:]}"] if missing else []


def _key_of(o: Plain) -> str:
    metadata = o.get("metadata") or {}
    return f"{o['kind']}/{metadata.get('namespace') or ''}/{metadata.get('name')}"


def _is_absent(path: str, leaves: dict[str, Any]) -> bool:
    return path not in leaves and not (path.endswith("]") and any(other.startswith(path) for other in leaves))


def _is_same(path: str, expected: Any, actual: Any) -> bool:
    if expected == actual and isinstance(expected, bool) == isinstance(actual, bool):
        return True
    return ".resources." in path and not isinstance(actual, dict) and str(expected) == str(actual)


def _config_map_data(data: Plain) -> Plain:
    data = {name: value for name, value in data.items() if name not in ("merged-values", "original-values")}
    for name in {"mesh", "meshNetworks", "values", "config"} & data.keys():
        data[name] = _parse(data[name])
    config = data.get("config")
    if isinstance(config, dict) and isinstance(config.get("templates"), dict):
        templates = {name: text for name, text in config["templates"].items() if name not in CHART_TEMPLATES}
        data["config"] = {**config, "templates": templates}
    return data


def _parse(text: Any) -> Any:
    try:
        return yaml.load(text, _LOADER) if isinstance(text, str) else text
    except yaml.YAMLError:
        return text


def _verbs(rules: Sequence[Plain]) -> dict[str, str]:
    """Return the rules of a Role as group/resource[/name]: sorted verbs."""
    verbs: dict[str, set[str]] = {}
    for rule in rules:
        for group in rule.get("apiGroups") or [""]:
            for resource in rule.get("resources") or rule.get("nonResourceURLs") or []:
                for name in rule.get("resourceNames") or [""]:
                    key = "/".join(filter(None, [group, resource, name]))
                    verbs.setdefault(key, set()).update(rule.get("verbs") or [])
    return {key: ",".join(sorted(values)) for key, values in verbs.items()}


def _flags(arguments: Sequence[Any]) -> dict[str, Any]:
    """Return arguments as flag: value, whether given in one word or two, and the others by their position."""
    flags: dict[str, Any] = {}
    positional, flag = 0, ""
    for word in map(str, arguments):
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            flags[flag] = value if equals else "true"
            flag = "" if equals else flag
        elif flag:
            flags[flag], flag = word, ""
        else:
            flags[str(positional)] = word
            positional += 1
    return flags


def _add_leaves(path: str, value: Any, leaves: dict[str, Any]) -> None:
    if isinstance(value, dict):
        if not value and path.endswith(".emptyDir"):
            leaves[path] = {}
        for name, field in value.items():
            _add_leaves(f"{path}.{name}" if path else str(name), field, leaves)
    elif isinstance(value, list) and path.endswith("].args"):
        leaves |= {f"{path}[{flag}]": text for flag, text in _flags(value).items()}
    elif isinstance(value, list):
        names = [_name_of(item) for item in value]
        for position, (name, item) in enumerate(zip(names, value, strict=True)):
            if name and names.count(name) == 1:
                rest = {k: v for k, v in item.items() if k == "value" or str(v) != name}  # the path has the name
                _add_leaves(f"{path}[{name}]", item if len(item) == 1 else rest, leaves)
            else:
                _add_leaves(f"{path}[{position}]", item, leaves)
    elif value is not None:
        leaves[path] = value


def _name_of(item: Any) -> str:
    return str(item.get("name") or item.get("containerPort") or item.get("key") or "") if isinstance(item, dict) else ""

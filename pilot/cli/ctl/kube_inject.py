"""pilotctl kube-inject: add the proxy to workloads in a file."""
from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import yaml

from pilot.cli.ctl.client import Client, CommandError
from pilot.ingest.documents import SyntaxFault, read_documents
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.lib.flags import parse_bool
from pilot.model.config.mesh_config import MeshConfig
from pilot.model.problem import Severity
from webhook.inject.config import ConfigError, InjectorConfig, decode_config
from webhook.inject.errors import InjectionError
from webhook.kube_inject import Injector, inject_documents
from webhook.profile.default import default_config
from webhook.profile.operator import mesh_config_of, values_of

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def add_to(commands: Any) -> None:
    parser = commands.add_parser("kube-inject", help="add the proxy to the workloads of a file")
    parser.add_argument("-f", "--filename", required=True, metavar="FILE", help="Kubernetes objects to read; - for standard input")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write; standard output where it is not said")
    parser.add_argument("--injectConfigFile", metavar="FILE", help="the key config of the ConfigMap istio-sidecar-injector")
    parser.add_argument("--valuesFile", metavar="FILE", help="its key values")
    parser.add_argument("--meshConfigFile", metavar="FILE", help="the mesh config")
    parser.add_argument("--operatorFileName", metavar="FILE", help="an IstioOperator, whose values and mesh config come before all others")
    parser.add_argument("-r", "--revision", default="", help="revision of the control plane")
    parser.set_defaults(run=run)


def run(_: Client, arguments: argparse.Namespace) -> str:
    """Returns the objects with their workloads injected. CommandError where one cannot be."""
    injector = _injector(arguments)
    documents = _read(arguments.filename)
    try:
        made = list(inject_documents(documents, injector, lambda text: print(text, file=sys.stderr)))
    except InjectionError as error:
        raise CommandError(str(error)) from error
    text = "---\n".join(yaml.dump(document, Dumper=_DUMPER, sort_keys=True, allow_unicode=True, width=2**20) for document in made)
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            file.write(text)
        return ""
    return text.rstrip("\n")


def _injector(arguments: argparse.Namespace) -> Injector:
    operator = _one(arguments.operatorFileName)
    try:
        config = _config(arguments, operator)
    except ConfigError as error:
        raise CommandError(str(error)) from error
    mesh = _mesh([_one(arguments.meshConfigFile), mesh_config_of(operator)])
    revision = "" if arguments.revision == "default" else arguments.revision or str(config.value("revision") or "")
    native = os.environ.get("ENABLE_NATIVE_SIDECARS", "") or "false"
    return Injector(config, mesh, revision, native != "auto" and parse_bool(native), os.environ.get("COMPLIANCE_POLICY", ""))


def _config(arguments: argparse.Namespace, operator: dict[str, Any]) -> InjectorConfig:
    values = values_of(operator) if operator else _one(arguments.valuesFile)
    if arguments.injectConfigFile:
        return decode_config(_text(arguments.injectConfigFile), yaml.dump(values or {}, Dumper=_DUMPER))
    return default_config(values)


def _mesh(layers: list[dict[str, Any]]) -> MeshConfig:
    mesh, problems = decode_mesh_config(layers)
    if mesh is None:
        wrong = (p for p in problems if p.severity is Severity.ERROR)
        raise CommandError("mesh config: " + "; ".join(f"{p.path}: {p.message}" for p in wrong))
    return mesh


def _text(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.read()
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error


def _read(path: str) -> list[Any]:
    try:
        return [document.plain for document in read_documents(_text(path).encode(), path)]
    except SyntaxFault as fault:
        raise CommandError(f"{path}:{fault.line}: {fault}") from fault


def _one(path: str | None) -> dict[str, Any]:
    """Returns the one document of a file, an empty one where no file is named."""
    documents = _read(path) if path else []
    found = documents[0] if documents else {}
    if not isinstance(found, dict):
        raise CommandError(f"{path}: expected a mapping")
    return found

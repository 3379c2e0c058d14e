"""pilotctl kube-inject: inject the proxy into the workloads in a file.

The injection configuration is that of the cluster, unless flags name files or there is no cluster.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import yaml

from deploy.operator.errors import SettingsError
from deploy.operator.inputs import read_operator
from deploy.operator.manifest import render_installation
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, selects_cluster, with_cluster
from pilot.cli.ctl.connection import SYSTEM
from pilot.cli.ctl.control_plane_config import INJECTOR, MESH, ControlPlaneConfig, find_config, get_existing
from pilot.cli.ctl.files import write_file
from pilot.cli.ctl.output import write
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.problem import Severity
from pilot.ingest.files.documents import SyntaxFault, read_documents
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.lib.flags import parse_bool
from webhook.defaults.injector_config import default_config
from webhook.defaults.operator_settings import mesh_config_of, values_of
from webhook.inject.config import ConfigError, InjectorConfig, decode_config
from webhook.inject.errors import InjectionError
from webhook.kube_inject import FileInjector, has_workloads, inject_documents

if TYPE_CHECKING:
    from pilot.kube.object_client import ObjectClient

Plain = dict[str, Any]
_KEYS = {INJECTOR: ("config", "values"), MESH: ("mesh",)}
_HINT = (
    "select the control plane with -i and -r, or inject without a cluster with --injectConfigFile, --valuesFile and "
    "--meshConfigFile"
)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class InjectionSources(NamedTuple):
    """Sources of the injection configuration, as specified by the flags: files, and names of ConfigMaps."""

    inject_config: str | None
    values: str | None
    mesh_config: str | None
    operator: str | None
    inject_map: str
    mesh_map: str
    revision: str
    system: str

    def config_maps(self) -> dict[str, str]:
        """Return the ConfigMaps to read from the cluster, by the name without a revision.

        The values are the names that flags specify, or "".
        """
        injector = {} if self.values else {INJECTOR: self.inject_map}
        return injector | ({} if self.mesh_config else {MESH: self.mesh_map})


@click.command()
@click.option(
    "-f", "--filename", required=True, metavar="FILE", help="file of Kubernetes objects; - for standard input"
)
@click.option("-o", "--output", metavar="FILE", help="output file (default: standard output)")
@click.option(
    "--injectConfigFile",
    "inject_config",
    metavar="FILE",
    help='injection configuration: the key "config" of the ConfigMap istio-sidecar-injector',
)
@click.option(
    "--valuesFile",
    "values",
    metavar="FILE",
    help='injection values: the key "values" of the ConfigMap istio-sidecar-injector',
)
@click.option("--meshConfigFile", "mesh_config", metavar="FILE", help="mesh config")
@click.option(
    "--operatorFileName",
    "operator",
    metavar="FILE",
    help="IstioOperator whose values and mesh config take precedence",
)
@click.option(
    "--injectConfigMapName",
    "inject_map",
    default="",
    metavar="NAME",
    help=f"ConfigMap of the cluster instead of {INJECTOR}",
)
@click.option(
    "--meshConfigMapName", "mesh_map", default="", metavar="NAME", help=f"ConfigMap of the cluster instead of {MESH}"
)
@click.option("--webhookConfig", "webhook", expose_value=False, hidden=True)
@click.option("-r", "--revision", default="", help="control plane revision")
@click.option("-i", "--istioNamespace", "system", default=SYSTEM, show_default=True, help="namespace of the mesh")
@with_cluster
def kube_inject(cluster: Cluster, filename: str, output: str | None, **sources: Any) -> None:
    """Inject the proxy into the workloads in a file.

    What no flag names is read from the ConfigMaps of the control plane in the cluster. Without a kubeconfig, it has the
    defaults.
    """
    injector = _injector(cluster, InjectionSources(**sources))
    documents = _read(filename)
    if not any(isinstance(document, dict) and document.get("kind") for document in documents):
        raise CommandError(f"{filename} contains no objects")
    if not any(map(has_workloads, documents)):
        click.echo(f"{filename} contains no workloads: nothing was injected", err=True)
    try:
        injected = list(inject_documents(documents, injector, lambda text: click.echo(text, err=True)))
    except InjectionError as error:
        raise CommandError(str(error)) from error
    text = "---\n".join(
        yaml.dump(document, Dumper=_DUMPER, sort_keys=True, allow_unicode=True, width=2**20) for document in injected
    )
    if output:
        write_file(output, text)
    else:
        write(text.rstrip("\n"))


def _injector(cluster: Cluster, sources: InjectionSources) -> FileInjector:
    operator = _operator(sources.operator) if sources.operator else {}
    installed = _installed(operator) if operator else _installed_in(cluster, sources)
    try:
        config = _config(sources, operator, installed.get(INJECTOR, {}))
    except ConfigError as error:
        raise CommandError(f"{sources.inject_config}: {error}" if sources.inject_config else str(error)) from error
    mesh = _mesh(
        [_one(sources.mesh_config), _yaml(installed.get(MESH, {}).get("mesh", "")) or mesh_config_of(operator)]
    )
    revision = "" if sources.revision == "default" else sources.revision or str(config.value("revision") or "")
    native = os.environ.get("ENABLE_NATIVE_SIDECARS", "") or "false"
    return FileInjector(
        config, mesh, revision, native != "auto" and parse_bool(native), os.environ.get("COMPLIANCE_POLICY", "")
    )


def _installed(operator: Plain) -> dict[str, Plain]:
    """Return the data of the ConfigMaps that an IstioOperator installs, keyed by name without the revision.

    The result is empty if the IstioOperator installs no control plane.
    """
    try:
        objects = render_installation(operator, lambda _: None, force=True).objects(["Pilot"])
    except SettingsError as error:
        raise CommandError(str(error)) from error
    revision = str((operator.get("spec") or {}).get("revision") or "")
    return {o["metadata"]["name"].removesuffix(f"-{revision}"): o["data"] for o in objects if o["kind"] == "ConfigMap"}


def _installed_in(cluster: Cluster, sources: InjectionSources) -> dict[str, Plain]:
    """Return the data of the ConfigMaps of the cluster that no file replaces, keyed by name without the revision.

    The result is empty if there is no cluster.
    """
    names = sources.config_maps()
    if not names or not selects_cluster(click.get_current_context()):
        return {}

    async def work(objects: ObjectClient, _: ObjectClient) -> dict[str, Plain]:
        installed = await find_config(objects, sources.system, sources.revision)
        return {kind: await _read_config_map(objects, installed, kind, name) for kind, name in names.items()}

    try:
        return cluster.run(work)
    except CommandError as error:
        raise CommandError(f"{error}; {_HINT}") from error


async def _read_config_map(objects: ObjectClient, installed: ControlPlaneConfig, kind: str, name: str) -> Plain:
    """Return the data of a ConfigMap. `kind` is its name without the revision, and `name` another one, or ""."""
    key = installed.key(kind)._replace(name=name) if name else installed.key(kind)
    data: Plain = (await get_existing(objects, key)).get("data") or {}
    if missing := [entry for entry in _KEYS[kind] if entry not in data]:
        raise CommandError(f"the {key} has no key {missing[0]}")
    return data


def _config(sources: InjectionSources, operator: Plain, installed: Plain) -> InjectorConfig:
    values = values_of(operator) if operator else _one(sources.values)
    if sources.inject_config:
        is_written = bool(operator or sources.values or not installed)
        written = yaml.dump(values, Dumper=_DUMPER) if is_written else installed["values"]
        config = decode_config(_text(sources.inject_config), written)
        if not config.written.templates:
            raise CommandError(
                f"{sources.inject_config} has no templates; use the key config of the ConfigMap istio-sidecar-injector"
            )
        return config
    if installed:
        return decode_config(installed["config"], installed["values"])
    return default_config(values)


def _mesh(layers: list[Plain]) -> MeshConfig:
    mesh, problems = decode_mesh_config(layers)
    if mesh is None:
        wrong = (p for p in problems if p.severity is Severity.ERROR)
        raise CommandError("mesh config: " + "; ".join(f"{p.path}: {p.message}" for p in wrong))
    return mesh


def _yaml(text: str) -> Plain:
    return read_documents(text.encode(), "mesh")[0].plain if text else {}


def _text(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.read()
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeError as error:
        raise CommandError(f"cannot read {path}: not a text in UTF-8") from error
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error


def _read(path: str) -> list[Any]:
    try:
        return [document.plain for document in read_documents(_text(path).encode(), path)]
    except SyntaxFault as fault:
        raise CommandError(f"{path}:{fault.line}: {fault}") from fault


def _operator(path: str) -> Plain:
    """Return the IstioOperator in a file. Raise CommandError if the file contains something else."""
    try:
        return read_operator(_text(path), path)
    except SettingsError as error:
        raise CommandError(str(error)) from error


def _one(path: str | None) -> Plain:
    """Return the first document in a file, or {} if there is no file."""
    documents = _read(path) if path else []
    content = documents[0] if documents else {}
    if not isinstance(content, dict):
        raise CommandError(f"{path}: expected a mapping")
    return content

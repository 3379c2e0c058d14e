"""pilotctl operator: the process that installs what IstioOperators in a cluster say."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from deploy.chart.chart import ChartError, installation_folder, read_chart
from deploy.chart.render import render
from deploy.operator.errors import SettingsError
from deploy.operator.inputs import read_operator
from deploy.operator.manifest import in_apply_order, manifest_text
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, confirm, of_cluster
from pilot.cli.ctl.files import read_files
from pilot.cli.ctl.output import write
from pilot.cli.ctl.progress import shown_progress
from pilot.install.install_plan import Step
from pilot.install.installer import Installer, WaitOptions
from pilot.install.tag_webhooks import NAMESPACE
from pilot.kube.errors import NotFound
from pilot.kube.object_client import ObjectClient, ResourceKey, UnknownKind, VersionedKind, resource_key
from pilot.operator.deletion import remove_all_finalizers
from pilot.operator.istio_operator_resource import FINALIZER, KIND
from pilot.operator.operator_process import parse_namespaces

Plain = dict[str, Any]
Function = TypeVar("Function", bound=Callable[..., Any])
_NAME = "istio-operator"
_DEPLOYMENT = VersionedKind("apps/v1", "Deployment")
_LOOK, _LOOKS = 0.5, 120
"""Seconds between two looks at a Deployment that goes, and how many there are."""
_GONE = ("Deployment", "Service", "RoleBinding", "Role", "ClusterRoleBinding", "ClusterRole", "ServiceAccount")


@click.group()
def operator() -> None:
    """The operator: installs what IstioOperators in a cluster say, and keeps it so."""


def operator_options(function: Function) -> Function:
    """Gives a command the options that say what the operator is to be, as `values` of its chart and `package`."""

    @click.option("--image", default="", metavar="NAME", help="whole name of its image, in the place of hub and tag")
    @click.option("--hub", default="", help="registry of its image")
    @click.option("--tag", default="", help="tag of its image")
    @click.option(
        "--imagePullSecrets", "secrets", multiple=True, metavar="NAME", help="secret that the image is pulled with"
    )
    @click.option(
        "--operatorNamespace", "namespace", default=_NAME, show_default=True, help="namespace that it runs in"
    )
    @click.option(
        "--watchedNamespaces",
        "watched",
        default="istio-system",
        show_default=True,
        metavar="A,B",
        help="where it works",
    )
    @click.option("-r", "--revision", default="", help="only IstioOperators of this revision")
    @click.option("-d", "--manifests", "package", default="", metavar="FOLDER", help="charts in the place of our own")
    @functools.wraps(function)
    def command(
        image: str, hub: str, tag: str, secrets: Sequence[str], namespace: str, watched: str, revision: str, **more: Any
    ) -> Any:
        said = {"image": image, "hub": hub, "tag": tag, "imagePullSecrets": list(secrets), "revision": revision}
        values = {
            "operatorNamespace": namespace,
            "watchedNamespaces": watched,
            **{key: value for key, value in said.items() if value},
        }
        return function(values=values, **more)

    return command  # type: ignore[return-value]


@operator.command()
@operator_options
def dump(values: Plain, package: str) -> None:
    """Print the objects of the operator as YAML."""
    write(manifest_text(_objects(values, package)).rstrip("\n"))


@operator.command()
@operator_options
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="an IstioOperator that is written too")
@click.option("--dry-run", is_flag=True, help="have the API server check everything, and change nothing")
@of_cluster
def init(cluster: Cluster, values: Plain, package: str, files: Sequence[str], dry_run: bool) -> None:
    """Install the operator, with the namespaces that it watches."""
    found = _objects(values, package)
    watched = parse_namespaces(values["watchedNamespaces"]) or []
    customs = [_custom(name, text, watched) for name, text in read_files(files).items()]

    async def work(objects: ObjectClient, _: ObjectClient) -> None:
        for name in dict.fromkeys((values["operatorNamespace"], *watched)):
            if await objects.get(ResourceKey(NAMESPACE, "", name)) is None:
                await objects.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        with shown_progress() as report:
            failure = await Installer(objects, WaitOptions(), report).install_step(
                Step("Operator", _NAME, values["operatorNamespace"], tuple(found))
            )
        if failure is not None:
            raise CommandError("; ".join((failure.reason, *(line.strip() for line in failure.details))))
        for custom in customs:
            with contextlib.suppress(
                *((NotFound, UnknownKind) if dry_run else ())
            ):  # its namespace or definition is not made in a dry run
                await objects.apply(custom)

    cluster.ask(work, dry_run)
    write(
        "Nothing was changed: the API server takes all of it."
        if dry_run
        else f"✔ The operator watches {', '.join(watched) or 'all namespaces'}."
    )


@operator.command()
@click.option("--operatorNamespace", "namespace", default=_NAME, show_default=True, help="namespace that it runs in")
@click.option("-r", "--revision", default="", help="the operator of this revision")
@click.option("--purge", is_flag=True, help="the operators of all revisions")
@click.option(
    "--force", is_flag=True, help="go on although IstioOperators are there that nobody would look after any more"
)
@click.option("--dry-run", is_flag=True, help="say what would go, and change nothing")
@click.option("-y", "--skip-confirmation", "yes", is_flag=True, help="do not ask")
@of_cluster
def remove(cluster: Cluster, namespace: str, revision: str, purge: bool, force: bool, dry_run: bool, yes: bool) -> None:
    """Take the operator away. What it installed stays, and its IstioOperators can be deleted like anything else."""
    found, customs = cluster.ask(lambda objects, _: _find(objects, namespace, revision, purge))
    if not found:
        raise CommandError(
            f"there is no operator{f' of revision {revision}' if revision else ''} in the namespace {namespace}"
        )
    if dry_run:
        for key in found:
            write(f"would delete {key}")
        return
    if customs and not force:
        click.echo(
            f"! nobody will look after these any more: {', '.join(f'{key.namespace}/{key.name}' for key in customs)}",
            err=True,
        )
    confirm(f"The operator in the namespace {namespace} will be removed; what it installed stays. Go on?", yes or force)
    for line in cluster.ask(lambda objects, _: _remove(objects, found, revision, purge)):
        write(line)


def _objects(values: Plain, package: str) -> list[Plain]:
    try:
        return in_apply_order(
            render(read_chart(installation_folder(package) / "charts" / _NAME), values, values["operatorNamespace"])
        )
    except ChartError as error:
        raise CommandError(str(error)) from error


def _custom(name: str, text: bytes, watched: Sequence[str]) -> Plain:
    """Returns the IstioOperator of a file, with a namespace in which it is seen."""
    try:
        found = read_operator(text.decode("utf-8", "replace"), name)
    except SettingsError as error:
        raise CommandError(str(error)) from error
    metadata = dict(found.get("metadata") or {})
    metadata.setdefault("name", "istiocontrolplane")
    metadata.setdefault("namespace", watched[0] if watched else "istio-system")
    if watched and metadata["namespace"] not in watched:
        raise CommandError(
            f"{name}: metadata.namespace: {metadata['namespace']} is none of the namespaces that are watched: {', '.join(watched)}"
        )
    return {**found, "apiVersion": KIND.api_version, "kind": KIND.name, "metadata": metadata}


async def _find(
    objects: ObjectClient, namespace: str, revision: str, purge: bool
) -> tuple[list[ResourceKey], list[ResourceKey]]:
    """Returns the objects of operators, in the order in which they are to go, and the IstioOperators that they look after."""
    name = f"{_NAME}-{revision}" if revision else _NAME
    deployments = await objects.list(_DEPLOYMENT, "app.kubernetes.io/name=istio-operator", namespace)
    named = [plain["metadata"]["name"] for plain in deployments if purge or plain["metadata"]["name"] == name]
    found: list[ResourceKey] = []
    for kind_name in _GONE:
        for deployment in named:
            found += await _labelled(objects, kind_name, f"app.kubernetes.io/name=istio-operator,name={deployment}")
    customs = [
        resource_key(plain)
        for plain in await objects.list(KIND)
        if FINALIZER in (plain["metadata"].get("finalizers") or ())
    ]
    return found, customs


async def _labelled(objects: ObjectClient, kind_name: str, labels: str) -> list[ResourceKey]:
    version = {"Deployment": "apps/v1", "Service": "v1", "ServiceAccount": "v1"}.get(
        kind_name, "rbac.authorization.k8s.io/v1"
    )
    return [resource_key(plain) for plain in await objects.list(VersionedKind(version, kind_name), labels)]


async def _wait_until_gone(objects: ObjectClient, key: ResourceKey) -> None:
    """Returns when an object is gone, or after a minute."""
    for _ in range(_LOOKS):
        if await objects.get(key) is None:
            return
        await asyncio.sleep(_LOOK)


async def _remove(objects: ObjectClient, found: Sequence[ResourceKey], revision: str, purge: bool) -> list[str]:
    """Deletes operators, and then the finalizers that nobody would take away any more; returns what was done, a line each."""
    lines = []
    for key in found:
        if await objects.delete(key):
            lines.append(f"deleted {key}")
        if key.kind == _DEPLOYMENT:
            await _wait_until_gone(objects, key)
    released = await remove_all_finalizers(objects, None, "" if purge else revision)
    return [*lines, *(f"released {key}" for key in released), "✔ Removed."]

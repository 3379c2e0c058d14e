"""pilotctl operator: install and remove the operator."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from deploy.chart.chart import ChartError, installation_folder, read_chart
from deploy.chart.render import render
from deploy.images import local_image_remarks
from deploy.operator.errors import SettingsError
from deploy.operator.inputs import read_operator
from deploy.operator.manifest import in_apply_order, manifest_text
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, confirm, with_cluster
from pilot.cli.ctl.command import AliasGroup
from pilot.cli.ctl.files import read_files
from pilot.cli.ctl.output import write
from pilot.cli.ctl.progress import progress_reporter
from pilot.cli.ctl.request_texts import NAMESPACE as NAMESPACE_NAME
from pilot.install.install_plan import Step
from pilot.install.installer import Installer, WaitOptions
from pilot.install.tag_webhooks import NAMESPACE
from pilot.kube.api_errors import NotFound
from pilot.kube.object_client import ObjectClient, ResourceKey, UnknownKind, VersionedKind, resource_key
from pilot.operator.deletion import remove_all_finalizers
from pilot.operator.istio_operator_resource import FINALIZER, KIND
from pilot.operator.operator_process import parse_namespaces

Plain = dict[str, Any]
Function = TypeVar("Function", bound=Callable[..., Any])
_NAME = "istio-operator"
_DEPLOYMENT = VersionedKind("apps/v1", "Deployment")
_POLL_INTERVAL, _POLLS = 0.5, 120
"""Interval in seconds between checks for the deletion of a Deployment, and the maximum number of checks."""
_REMOVED_KINDS = ("Deployment", "Service", "RoleBinding", "Role", "ClusterRoleBinding", "ClusterRole", "ServiceAccount")


@click.group(cls=AliasGroup)
def operator() -> None:
    """Manage the operator, which reconciles the IstioOperators of a cluster."""


def operator_options(function: Function) -> Function:
    """Add the options of the operator to a command, and pass it the `values` for the operator's chart and `package`."""

    @click.option("--image", default="", metavar="NAME", help="full image name, overrides --hub and --tag")
    @click.option("--hub", default="", help="image registry")
    @click.option("--tag", default="", help="image tag")
    @click.option(
        "--imagePullSecrets", "secrets", multiple=True, metavar="NAME", help="image pull secret; may be repeated"
    )
    @click.option(
        "--operatorNamespace",
        "namespace",
        type=NAMESPACE_NAME,
        default=_NAME,
        show_default=True,
        help="namespace of the operator",
    )
    @click.option(
        "--watchedNamespaces",
        "watched",
        default="istio-system",
        show_default=True,
        metavar="A,B",
        help="namespaces in which the operator reconciles IstioOperators",
    )
    @click.option("-r", "--revision", default="", help="reconcile only IstioOperators of this revision")
    @click.option(
        "-d",
        "--manifests",
        "package",
        default="",
        metavar="DIR",
        help="directory with charts to use instead of the built-in ones",
    )
    @functools.wraps(function)
    def command(
        image: str, hub: str, tag: str, secrets: Sequence[str], namespace: str, watched: str, revision: str, **more: Any
    ) -> Any:
        for name in parse_namespaces(watched) or ():
            try:
                NAMESPACE_NAME.convert(name, None, None)
            except click.BadParameter as error:
                raise click.BadParameter(error.message, param_hint="'--watchedNamespaces'") from None
        image_values = {"image": image, "hub": hub, "tag": tag, "imagePullSecrets": list(secrets), "revision": revision}
        values = {
            "operatorNamespace": namespace,
            "watchedNamespaces": watched,
            **{key: value for key, value in image_values.items() if value},
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
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="IstioOperator to apply afterwards")
@click.option("--dry-run", is_flag=True, help="validate everything with the API server without changing anything")
@with_cluster
def init(cluster: Cluster, values: Plain, package: str, files: Sequence[str], dry_run: bool) -> None:
    """Install the operator, and create the namespaces that it watches."""
    operator_objects = _objects(values, package)
    watched = parse_namespaces(values["watchedNamespaces"]) or []
    resources = [_read_resource(name, text, watched) for name, text in read_files(files).items()]

    async def work(objects: ObjectClient, _: ObjectClient) -> None:
        for name in dict.fromkeys((values["operatorNamespace"], *watched)):
            if await objects.get(ResourceKey(NAMESPACE, "", name)) is None:
                await objects.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        with progress_reporter() as report:
            failure = await Installer(objects, WaitOptions(), report).install_step(
                Step("Operator", _NAME, values["operatorNamespace"], tuple(operator_objects))
            )
        if failure is not None:
            raise CommandError("; ".join((failure.reason, *(line.strip() for line in failure.details))))
        for resource in resources:
            with contextlib.suppress(
                *((NotFound, UnknownKind) if dry_run else ())
            ):  # a dry run creates neither its namespace nor its CRD
                await objects.apply(resource)

    cluster.run(work, dry_run)
    write(
        "Nothing was changed. The API server accepts all objects."
        if dry_run
        else f"✔ The operator watches {', '.join(watched) or 'all namespaces'}."
    )


@operator.command()
@click.option("--operatorNamespace", "namespace", default=_NAME, show_default=True, help="namespace of the operator")
@click.option("-r", "--revision", default="", help="remove the operator of this revision")
@click.option("--purge", is_flag=True, help="remove the operators of all revisions")
@click.option("--force", is_flag=True, help="continue even if IstioOperators would no longer be reconciled")
@click.option("--dry-run", is_flag=True, help="print the objects to delete without deleting them")
@click.option("-y", "--skip-confirmation", "yes", is_flag=True, help="do not prompt")
@with_cluster
def remove(cluster: Cluster, namespace: str, revision: str, purge: bool, force: bool, dry_run: bool, yes: bool) -> None:
    """Remove the operator. Installations are kept, and finalizers are removed from IstioOperators."""
    keys, resources = cluster.run(lambda objects, _: _find(objects, namespace, revision, purge))
    if not keys:
        raise CommandError(
            f"there is no operator{f' with revision {revision}' if revision else ''} in namespace {namespace}"
        )
    if dry_run:
        for key in keys:
            write(f"would delete {key}")
        return
    if resources and not force:
        names = ", ".join(f"{key.namespace}/{key.name}" for key in resources)
        click.echo(f"! these IstioOperators will no longer be reconciled: {names}", err=True)
    confirm(f"The operator in namespace {namespace} will be removed; its installations stay. Continue?", yes or force)
    for line in cluster.run(lambda objects, _: _remove(objects, keys, revision, purge)):
        write(line)


def _objects(values: Plain, package: str) -> list[Plain]:
    try:
        chart = read_chart(installation_folder(package) / "charts" / _NAME)
        objects = render(chart, values, values["operatorNamespace"])
    except ChartError as error:
        raise CommandError(str(error)) from error
    for remark in local_image_remarks(objects, "--image"):
        click.echo(f"! {remark}", err=True)
    return in_apply_order(objects)


def _read_resource(name: str, text: bytes, watched: Sequence[str]) -> Plain:
    """Return the IstioOperator in a file. Its namespace must be a watched one."""
    try:
        resource = read_operator(text.decode("utf-8", "replace"), name)
    except SettingsError as error:
        raise CommandError(str(error)) from error
    metadata = dict(resource.get("metadata") or {})
    metadata.setdefault("name", "istiocontrolplane")
    metadata.setdefault("namespace", watched[0] if watched else "istio-system")
    if watched and metadata["namespace"] not in watched:
        path, namespaces = f"{name}: metadata.namespace", ", ".join(watched)
        raise CommandError(f"{path}: {metadata['namespace']} is not a watched namespace (watched: {namespaces})")
    return {**resource, "apiVersion": KIND.api_version, "kind": KIND.name, "metadata": metadata}


async def _find(
    objects: ObjectClient, namespace: str, revision: str, purge: bool
) -> tuple[list[ResourceKey], list[ResourceKey]]:
    """Return the operators' objects in deletion order, and the IstioOperators that the operators reconcile."""
    name = f"{_NAME}-{revision}" if revision else _NAME
    deployments = await objects.list(_DEPLOYMENT, "app.kubernetes.io/name=istio-operator", namespace)
    names = [plain["metadata"]["name"] for plain in deployments if purge or plain["metadata"]["name"] == name]
    keys: list[ResourceKey] = []
    for kind_name in _REMOVED_KINDS:
        for deployment in names:
            keys += await _labelled(objects, kind_name, f"app.kubernetes.io/name=istio-operator,name={deployment}")
    resources = [
        resource_key(plain)
        for plain in await objects.list(KIND)
        if FINALIZER in (plain["metadata"].get("finalizers") or ())
    ]
    return keys, resources


async def _labelled(objects: ObjectClient, kind_name: str, labels: str) -> list[ResourceKey]:
    version = {"Deployment": "apps/v1", "Service": "v1", "ServiceAccount": "v1"}.get(
        kind_name, "rbac.authorization.k8s.io/v1"
    )
    return [resource_key(plain) for plain in await objects.list(VersionedKind(version, kind_name), labels)]


async def _wait_until_gone(objects: ObjectClient, key: ResourceKey) -> None:
    """Wait until an object is deleted, for at most a minute."""
    for _ in range(_POLLS):
        if await objects.get(key) is None:
            return
        await asyncio.sleep(_POLL_INTERVAL)


async def _remove(objects: ObjectClient, keys: Sequence[ResourceKey], revision: str, purge: bool) -> list[str]:
    """Delete operators and the finalizers of their IstioOperators. Return one line for each action."""
    lines = []
    for key in keys:
        if await objects.delete(key):
            lines.append(f"deleted {key}")
        if key.kind == _DEPLOYMENT:
            await _wait_until_gone(objects, key)
    unfinalized = await remove_all_finalizers(objects, None, "" if purge else revision)
    return [*lines, *(f"removed the finalizer of {key}" for key in unfinalized), "✔ Removed."]

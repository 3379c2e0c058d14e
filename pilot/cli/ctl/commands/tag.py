"""pilotctl tag: manage revision tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from deploy.chart.chart import installation_folder
from deploy.operator.manifest import manifest_text
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, confirm, with_cluster
from pilot.cli.ctl.command import AliasGroup, with_output
from pilot.cli.ctl.output import CommandResult, TextTable, write
from pilot.config.validation.rules import is_dns_label
from pilot.install.injectors import injection_conflicts, revision_of, tag_of
from pilot.install.installation_labels import DEFAULT
from pilot.install.tag_webhooks import (
    RevisionTag,
    TagError,
    apply_tag,
    build_tag_objects,
    list_injectors,
    remove_tag,
    tagged_namespaces,
)
from pilot.kube.object_client import ObjectClient

Function = TypeVar("Function", bound=Callable[..., Any])


_REVISIONS = (
    "as in --revision 1-24-1; kubectl get deployment -n istio-system -l app=istiod -L istio.io/rev lists the "
    "revisions, and pilotctl tag list the tags"
)
HINTS = {f"{command} --revision": _REVISIONS for command in ("set", "generate")}
"""Hints for commands without the revision of a tag."""


@click.group(cls=AliasGroup, hints=HINTS)
def tag() -> None:
    """Manage revision tags: aliases for revisions that namespace labels can refer to."""


def tag_options(function: Function) -> Function:
    """Add the options of a tag to a command."""
    options = (
        click.argument("name"),
        click.option("-r", "--revision", required=True, help="revision that the tag points to"),
        click.option("--overwrite", is_flag=True, help="move the tag if it exists"),
        click.option("--webhook-name", "webhook", default="", metavar="NAME", help="name of the webhook configuration"),
        click.option(
            "--auto-inject-namespaces",
            "everywhere",
            is_flag=True,
            help="for a tag named default: also inject into namespaces without labels",
        ),
        click.option(
            "-i",
            "--istioNamespace",
            "system",
            default="istio-system",
            show_default=True,
            help="control plane namespace",
        ),
        click.option(
            "-d",
            "--manifests",
            "package",
            default="",
            metavar="DIR",
            help="directory with charts to use instead of the built-in ones",
        ),
        with_cluster,
    )
    for option in reversed(options):
        function = option(function)
    return function


@tag.command("set")
@tag_options
@click.option("-y", "--skip-confirmation", "yes", is_flag=True, help="do not prompt")
def set_(cluster: Cluster, name: str, yes: bool, **options: Any) -> None:
    """Point a tag at a revision."""
    manifests = cluster.run(lambda objects, _: _objects(objects, name, **options))
    conflicts = cluster.run(lambda objects, _: _conflicts(objects, manifests))
    for line in conflicts:
        click.echo(f"! {line}", err=True)
    if conflicts:
        confirm("Pods would be injected twice. Continue?", yes)
    cluster.run(lambda objects, _: apply_tag(objects, manifests))
    write(f"✔ The tag {name} points to revision {options['revision']}.")
    if name != DEFAULT:
        write(f"To use it in a namespace: kubectl label namespace NAMESPACE istio.io/rev={name} istio-injection-")


@tag.command()
@tag_options
def generate(cluster: Cluster, name: str, **options: Any) -> None:
    """Print the objects of a tag as YAML."""
    write(manifest_text(cluster.run(lambda objects, _: _objects(objects, name, **options))).rstrip("\n"))


@tag.command("list")
@with_output
@with_cluster
def list_(cluster: Cluster) -> CommandResult:
    """List the tags with their revisions and namespaces."""
    tags = cluster.run(lambda objects, _: _list(objects))
    rows = [(each["tag"], each["revision"], ", ".join(each["namespaces"])) for each in tags]
    return CommandResult(tags, (TextTable(("TAG", "REVISION", "NAMESPACES"), rows),))


@tag.command()
@click.argument("name")
@click.option("-y", "--skip-confirmation", "yes", is_flag=True, help="do not prompt")
@with_cluster
def remove(cluster: Cluster, name: str, yes: bool) -> None:
    """Remove a tag."""
    namespaces = cluster.run(lambda objects, _: tagged_namespaces(objects, name))
    if namespaces:
        click.echo(f"! these namespaces use the tag and will no longer be injected: {', '.join(namespaces)}", err=True)
        confirm("Continue?", yes)
    for key in cluster.run(lambda objects, _: _remove(objects, name)):
        write(f"deleted {key}")


async def _objects(
    objects: ObjectClient,
    name: str,
    revision: str,
    overwrite: bool,
    webhook: str,
    everywhere: bool,
    system: str,
    package: str,
) -> list[dict[str, Any]]:
    if not is_dns_label(name):
        raise CommandError(f"{name} is not a valid tag: it must be a DNS label of lower case letters, digits and -")
    try:
        return await build_tag_objects(
            objects, RevisionTag(name, revision, system, webhook, everywhere), installation_folder(package), overwrite
        )
    except TagError as error:
        raise CommandError(str(error)) from error


async def _conflicts(objects: ObjectClient, manifests: list[dict[str, Any]]) -> list[str]:
    names = {plain["metadata"]["name"] for plain in manifests}
    takes_default = tag_of(manifests[0]) == DEFAULT
    others = [
        p
        for p in await list_injectors(objects)
        if p["metadata"]["name"] not in names and not (takes_default and revision_of(p) == DEFAULT)
    ]
    return injection_conflicts(manifests, others)


async def _list(objects: ObjectClient) -> list[dict[str, Any]]:
    tags = [(tag_of(plain), revision_of(plain)) for plain in await list_injectors(objects) if tag_of(plain)]
    return [
        {"tag": tag, "revision": revision, "namespaces": await tagged_namespaces(objects, tag)}
        for tag, revision in sorted(tags)
    ]


async def _remove(objects: ObjectClient, name: str) -> list[Any]:
    try:
        return await remove_tag(objects, name)
    except TagError as error:
        raise CommandError(str(error)) from error

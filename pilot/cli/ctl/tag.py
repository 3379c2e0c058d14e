"""pilotctl tag: names of revisions, which namespaces can be labelled with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from deploy.chart.chart import installation_folder
from deploy.operator.manifest import manifest_text
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, confirm, of_cluster
from pilot.cli.ctl.command import answers
from pilot.cli.ctl.output import CommandResult, TextTable, write
from pilot.config.validation.rules import is_dns_label
from pilot.install.injectors import injection_conflicts, revision_of, tag_of
from pilot.install.installation_labels import DEFAULT
from pilot.install.tag_webhooks import RevisionTag, TagError, list_injectors, tagged_namespaces, remove_tag, apply_tag, build_tag_objects
from pilot.kube.object_client import ObjectClient

Function = TypeVar("Function", bound=Callable[..., Any])


@click.group()
def tag() -> None:
    """Tags: names of revisions, which namespaces can be labelled with."""


def tag_options(function: Function) -> Function:
    """Gives a command the options that say what a tag is to be."""
    options = (
        click.argument("name"),
        click.option("-r", "--revision", required=True, help="the revision that it is to stand for"),
        click.option("--overwrite", is_flag=True, help="move it where it is there already"),
        click.option("--webhook-name", "webhook", default="", metavar="NAME", help="name of its webhook configuration"),
        click.option(
            "--auto-inject-namespaces",
            "everywhere",
            is_flag=True,
            help="for the tag default: inject where no label says anything, too",
        ),
        click.option(
            "-i",
            "--istioNamespace",
            "system",
            default="istio-system",
            show_default=True,
            help="namespace of the control plane",
        ),
        click.option(
            "-d", "--manifests", "package", default="", metavar="FOLDER", help="charts in the place of our own"
        ),
        of_cluster,
    )
    for option in reversed(options):
        function = option(function)
    return function


@tag.command("set")
@tag_options
@click.option("-y", "--skip-confirmation", "yes", is_flag=True, help="do not ask")
def set_(cluster: Cluster, name: str, yes: bool, **options: Any) -> None:
    """Have a tag stand for a revision."""
    made = cluster.ask(lambda objects, _: _objects(objects, name, **options))
    found = cluster.ask(lambda objects, _: _conflicts(objects, made))
    for line in found:
        click.echo(f"! {line}", err=True)
    if found:
        confirm("Pods would be injected twice. Go on?", yes)
    cluster.ask(lambda objects, _: apply_tag(objects, made))
    write(f"✔ The tag {name} stands for revision {options['revision']}.")
    if name != DEFAULT:
        write(
            f"Namespaces that are to follow it: kubectl label namespace NAMESPACE istio.io/rev={name} istio-injection-"
        )


@tag.command()
@tag_options
def generate(cluster: Cluster, name: str, **options: Any) -> None:
    """Print the objects of a tag as YAML."""
    write(manifest_text(cluster.ask(lambda objects, _: _objects(objects, name, **options))).rstrip("\n"))


@tag.command("list")
@answers
@of_cluster
def list_(cluster: Cluster) -> CommandResult:
    """Print the tags, their revisions, and the namespaces that follow them."""
    found = cluster.ask(lambda objects, _: _list(objects))
    rows = [(each["tag"], each["revision"], ", ".join(each["namespaces"])) for each in found]
    return CommandResult(found, (TextTable(("TAG", "REVISION", "NAMESPACES"), rows),))


@tag.command()
@click.argument("name")
@click.option("-y", "--skip-confirmation", "yes", is_flag=True, help="do not ask")
@of_cluster
def remove(cluster: Cluster, name: str, yes: bool) -> None:
    """Remove a tag."""
    found = cluster.ask(lambda objects, _: tagged_namespaces(objects, name))
    if found:
        click.echo(f"! namespaces follow it, in which nothing will be injected any more: {', '.join(found)}", err=True)
        confirm("Go on?", yes)
    for key in cluster.ask(lambda objects, _: _remove(objects, name)):
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
        raise CommandError(f"{name} cannot be a tag: write a DNS label, of lower case letters, digits and -")
    try:
        return await build_tag_objects(
            objects, RevisionTag(name, revision, system, webhook, everywhere), installation_folder(package), overwrite
        )
    except TagError as error:
        raise CommandError(str(error)) from error


async def _conflicts(objects: ObjectClient, made: list[dict[str, Any]]) -> list[str]:
    own = {plain["metadata"]["name"] for plain in made}
    takes_default = tag_of(made[0]) == DEFAULT
    others = [
        p
        for p in await list_injectors(objects)
        if p["metadata"]["name"] not in own and not (takes_default and revision_of(p) == DEFAULT)
    ]
    return injection_conflicts(made, others)


async def _list(objects: ObjectClient) -> list[dict[str, Any]]:
    found = [(tag_of(plain), revision_of(plain)) for plain in await list_injectors(objects) if tag_of(plain)]
    return [
        {"tag": tag, "revision": revision, "namespaces": await tagged_namespaces(objects, tag)}
        for tag, revision in sorted(found)
    ]


async def _remove(objects: ObjectClient, name: str) -> list[Any]:
    try:
        return await remove_tag(objects, name)
    except TagError as error:
        raise CommandError(str(error)) from error

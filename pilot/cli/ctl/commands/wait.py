"""pilotctl wait: wait until proxies have acknowledged changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import NAMESPACE_DEFAULT, Cluster, default_namespace, with_cluster
from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.completions import complete_namespaces
from pilot.cli.ctl.durations import parse_seconds
from pilot.cli.ctl.files import read_files
from pilot.cli.ctl.output import CommandResult
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.request_texts import ANY_NAMESPACE
from pilot.cli.ctl.rollout import Target, named_targets, rollout_table, wait_until_delivered
from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import GroupKind
from pilot.config.object import Object
from pilot.ingest.analysis import read_objects
from pilot.ingest.decode import listed_objects
from pilot.ingest.fingerprint import fingerprint

CONDITIONS = ("delivered", "distribution", "delete")


class _Condition(click.Choice):  # type: ignore[type-arg]  # generic only since click 8.2
    """A condition to wait for. Conditions of objects, as of kubectl wait, are refused with a hint."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value.startswith(("condition=", "jsonpath=")):
            self.fail(
                f"{value!r}: pilotctl status shows conditions, and kubectl wait --for={value} waits for them; this "
                "command waits for proxies",
                param,
                ctx,
            )
        return str(super().convert(value, param, ctx))


@click.command()
@click.argument("objects", nargs=-1, metavar="[KIND/NAME]...")
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="file or directory of applied objects")
@click.option(
    "--for",
    "condition",
    type=_Condition(CONDITIONS),
    default=CONDITIONS[0],
    show_default=True,
    help="delivered: the proxies have the objects; delete: they have their removal; distribution: as delivered",
)
@click.option(
    "-n",
    "--namespace",
    type=ANY_NAMESPACE,
    default="",
    help=f"namespace of the objects ({NAMESPACE_DEFAULT})",
    shell_complete=complete_namespaces,
)
@click.option("--timeout", default="60s", show_default=True, metavar="DURATION", help="maximum duration of the command")
@click.option("--proxy", default=None, metavar="TEXT", help="only proxies whose names contain this text")
@click.option("--generation", type=click.IntRange(1), help="generation of the object (default: that of the API server)")
@with_output
@with_client
@with_cluster
def wait(
    client: Replicas,
    cluster: Cluster,
    objects: tuple[str, ...],
    files: tuple[str, ...],
    condition: str,
    namespace: str,
    timeout: str,
    proxy: str | None,
    generation: int | None,
) -> CommandResult:
    """Wait until all proxies have acknowledged objects.

    These are the connected proxies of every replica, and a version that includes the objects. Objects are those in
    files, or KIND/NAME or KIND/NAMESPACE/NAME, such as virtualservice/shop/cart. KIND may be a short name, such as vs.
    As with istioctl, KIND NAME.NAMESPACE is also accepted. The exit
    status is 1 if a proxy has rejected a change, or after the timeout.
    """
    seconds = parse_seconds(timeout, "--timeout")
    targets = [*_targets_in(files, namespace), *map(_identify, named_targets(objects, namespace))]
    if not targets:
        raise click.UsageError("specify objects, as KIND/NAME or with -f")
    if condition == "delete":
        targets = [target._replace(query=_identity(target.query) | {"absent": "true"}) for target in targets]
    elif generation is not None:
        if len(targets) != 1:
            raise click.UsageError("--generation requires a single object")
        targets = [targets[0]._replace(query=_identity(targets[0].query) | {"generation": str(generation)})]
    deleted = condition == "delete"
    rollouts = wait_until_delivered(
        client, targets, seconds, proxy or "", lambda t: t if deleted else _with_version(cluster, t)
    )
    return CommandResult([rollout.page for rollout in rollouts], [rollout_table(rollouts)])


def _targets_in(files: Sequence[str], namespace: str) -> list[Target]:
    """Return the objects in files. Raise CommandError if an object is invalid or a file contains none."""
    targets = []
    for name, text in (read_files(files) if files else {}).items():
        objects = read_objects({name: text})
        errors = [problem for problem in objects.problems if problem.is_rejection]
        if errors:
            place = f"{name}:{errors[0].line}" if errors[0].line else name
            subject = " ".join(filter(None, (str(errors[0].object), errors[0].path)))
            raise CommandError(f"{place}: {subject}: {errors[0].message}")
        rows = [row for _, _, row in objects.edits if isinstance(row, Object)]
        if not rows:
            raise CommandError(f"{name} contains no objects of kinds that a mesh uses")
        unplaced = _without_namespace(document.plain for _, document in objects.documents)
        for row in rows:
            is_unplaced = (row.kind.name, row.name) in unplaced
            targets.append(_target_of(row, (namespace or default_namespace()) if is_unplaced else row.namespace))
    return targets


def _without_namespace(documents: Iterable[Any]) -> set[tuple[str, str]]:
    """Return the kinds and names of the objects in documents that have no namespace."""
    objects = (item for plain in documents for _, item in listed_objects(plain, "") if isinstance(item, dict))
    metadata = ((str(item.get("kind")), item.get("metadata")) for item in objects)
    return {
        (kind, str(fields.get("name")))
        for kind, fields in metadata
        if isinstance(fields, dict) and not fields.get("namespace")
    }


def _target_of(row: Object[Any], namespace: str) -> Target:
    kind = CATALOGUE.find(row.kind)
    assert kind is not None
    version = f"{row.kind.group}/{kind.versions[0]}" if row.kind.group else kind.versions[0]
    query = {"kind": _kind_text(row.kind), "name": row.name, "fingerprint": fingerprint(row)}
    if kind.namespaced:
        query["namespace"] = namespace
    return Target(query, version)


def _identify(target: Target) -> Target:
    """Return a named target with the apiVersion of its kind, if only one kind has the name."""
    kinds = CATALOGUE.named(target.query["kind"])
    if len(kinds) != 1:
        return target
    (kind,) = kinds
    version = f"{kind.id.group}/{kind.versions[0]}" if kind.id.group else kind.versions[0]
    return Target(target.query | {"kind": _kind_text(kind.id)}, version)


def _kind_text(kind: GroupKind) -> str:
    return f"{kind.name}.{kind.group}" if kind.group else kind.name


def _identity(query: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if name in ("kind", "name", "namespace")}


def _with_version(cluster: Cluster, target: Target) -> Target:
    """Return a target with the generation and UID that the object has in the API server."""
    from pilot.kube.object_client import ResourceKey, VersionedKind

    if "generation" in target.query or not target.api_version:
        return target
    kind = VersionedKind(target.api_version, target.query["kind"].partition(".")[0])
    key = ResourceKey(kind, target.query.get("namespace", "default"), target.query["name"])
    try:
        plain = cluster.run(lambda objects, _: objects.get(key))
    except CommandError as error:
        raise CommandError(f"cannot read the generation of {target} (or pass --generation): {error}") from error
    if plain is None:
        raise CommandError(f"{target} does not exist in the API server")
    metadata = plain["metadata"]
    return target._replace(
        query=_identity(target.query) | {"generation": str(metadata["generation"]), "uid": metadata["uid"]}
    )

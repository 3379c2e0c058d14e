"""pilotctl precheck: check whether a control plane can be installed in a cluster, and what would break."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import click

from pilot.cli.ctl.analyzers.analyzer import DEFINITION
from pilot.cli.ctl.analyzers.reading import mesh_kinds, read_cluster
from pilot.cli.ctl.cluster import Cluster, with_cluster
from pilot.cli.ctl.command import with_output
from pilot.cli.ctl.commands.manifest import read_installation, read_settings
from pilot.cli.ctl.connection import SYSTEM
from pilot.cli.ctl.findings import Selection, reaches, with_selection
from pilot.cli.ctl.output import CommandResult
from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import GroupKind, is_istio
from pilot.config.problem import ObjectRef, Problem, Severity, plain_problem
from pilot.ingest.decode import decode_document
from pilot.install.install_plan import InstallPlan, build_install_plan
from pilot.install.preconditions import check_permissions, check_version
from pilot.kube.object_client import ResourceKey, VersionedKind
from pilot.lib.text import one_line

if TYPE_CHECKING:
    from pilot.kube.object_client import ObjectClient

Plain = dict[str, Any]
_ZIPKIN = ResourceKey(VersionedKind("v1", "Service"), SYSTEM, "zipkin")
_TRACED = (1, 21)
"""The last version that sent traces to this Service by default."""


@click.command()
@with_selection
@click.option("-f", "--from-version", "origin", metavar="VERSION", help="check what has changed since this version")
@click.option("-r", "--revision", default="", help="control plane revision")
@click.option("-i", "--istioNamespace", "system", default=SYSTEM, show_default=True, help="namespace of the mesh")
@click.option("--skip-controlplane", "skipped", is_flag=True, help="check only what --from-version asks for")
@with_output
@with_cluster
def precheck(
    cluster: Cluster, selection: Selection, origin: str | None, revision: str, system: str, skipped: bool
) -> CommandResult:
    """Check whether a control plane can be installed or upgraded in a cluster.

    The checks are: the version of Kubernetes, the permissions of the user, the versions of the Gateway API, and objects
    that the control plane would reject. Nothing is changed. The exit status is 1 if there are warnings or errors.
    """
    version = _version(origin) if origin else None
    plan = None if skipped else _plan(revision, system)

    async def work(objects: ObjectClient, _: ObjectClient) -> list[Problem]:
        problems = await _check(objects, plan, selection.namespace or "") if plan else []
        return [*problems, *(await _changes(objects) if version and version <= _TRACED else ())]

    findings = selection._replace(namespace=None).apply(map(plain_problem, cluster.run(work)))
    result = selection.show(findings, "✔ No issues found: the control plane can be installed or upgraded.")
    return result._replace(status=int(any(reaches(finding, "warning") for finding in findings)))


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.partition(".")[0].isdecimal()):
        raise click.UsageError(f"--from-version {text!r}: use a version such as 1.27")
    return int(major), int(minor.partition(".")[0])


def _plan(revision: str, system: str) -> InstallPlan:
    place = () if system == SYSTEM else (f"values.global.istioNamespace={system}",)
    return build_install_plan(read_installation(read_settings((), place, "", revision), force=False))


async def _check(objects: ObjectClient, plan: InstallPlan, namespace: str) -> list[Problem]:
    definitions = await objects.list(VersionedKind(DEFINITION.api_version, DEFINITION.name))
    kinds = {_kind(definition) for definition in definitions}
    return [
        *await check_version(objects),
        *await check_permissions(objects, plan),
        *(problem for definition in definitions for problem in check_definition(definition)),
        *await _rejections(objects, kinds, namespace),
    ]


def check_definition(definition: Plain) -> Iterator[Problem]:
    """Yield the problem of a CustomResourceDefinition of the Gateway API that does not serve the necessary version."""
    kind = CATALOGUE.find(_kind(definition))
    if kind is None or is_istio(kind.id.group):
        return
    versions = [str(version["name"]) for version in definition["spec"].get("versions", ()) if version.get("served")]
    text = f"the cluster serves {', '.join(sorted(versions)) or 'no version'} of the kind"
    ref = ObjectRef(DEFINITION.id, "", definition["metadata"]["name"])
    if not set(versions) & set(kind.versions):
        text += f", but the control plane reads {', '.join(kind.versions)}; upgrade the CustomResourceDefinition"
        yield Problem(code="version-not-served", object=ref, path="spec.versions", message=text)
    elif kind.versions[0] not in versions:
        text += f", but not {kind.versions[0]}, which replaces them"
        yield Problem(
            code="version-outdated", object=ref, path="spec.versions", message=text, severity=Severity.WARNING
        )


def _kind(definition: Plain) -> GroupKind:
    return GroupKind(definition["spec"]["group"], definition["spec"]["names"]["kind"])


async def _rejections(objects: ObjectClient, kinds: Collection[GroupKind], namespace: str) -> list[Problem]:
    """Return the problems because of which the control plane would reject objects of some kinds.

    They are in a namespace, or in all if `namespace` is "". Name the kinds that may not be listed on standard error.
    """
    read = await read_cluster(objects, (kind for kind in mesh_kinds() if kind.id in kinds))
    for kind, reason in read.denied.items():
        click.echo(f"! {kind.name} objects cannot be listed, so they are not checked: {one_line(reason)}", err=True)
    return [
        problem
        for one in read.objects
        if namespace in ("", one.namespace)
        for problem in decode_document(one.plain).problems
        if problem.is_rejection
    ]


async def _changes(objects: ObjectClient) -> list[Problem]:
    """Return what changes for a mesh that traced requests by default, because it has the Service zipkin."""
    if await objects.get(_ZIPKIN) is None:
        return []
    text = (
        "requests are no longer traced by default to this Service; to trace them, add a provider to the mesh config "
        "and a Telemetry that uses it"
    )
    ref = ObjectRef(GroupKind("", "Service"), SYSTEM, _ZIPKIN.name)
    return [Problem(code="tracing-not-default", object=ref, message=text, severity=Severity.WARNING)]

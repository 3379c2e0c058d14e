"""pilotctl analyze: check files or the configuration of a running control plane."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable
from typing import Any

import click
import msgspec

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObject, AnalyzedObjects
from pilot.cli.ctl.analyzers.analyzer import SERVICE, Analyzer
from pilot.cli.ctl.analyzers.conditions import NEGATIVE_CONDITION
from pilot.cli.ctl.analyzers.listed import ANALYZERS
from pilot.cli.ctl.analyzers.reading import (
    ClusterObjects,
    mesh_config_of,
    mesh_kinds,
    objects_in,
    read_cluster,
    run_analyzers,
)
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster, remembered, with_cluster
from pilot.cli.ctl.connection import connect, with_connection
from pilot.cli.ctl.files import STANDARD_INPUT, read_files
from pilot.cli.ctl.findings import SEVERITIES, Finding, Selection, reaches, with_selection
from pilot.cli.ctl.istio_codes import ANALYZER_NAMES, belongs_to, codes_of
from pilot.cli.ctl.output import FORMATS, CommandResult, TextTable, show
from pilot.cli.ctl.progress import step_progress
from pilot.cli.ctl.replicas import Replicas, report_missing
from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import GroupKind
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.problem import Problem, plain_problem
from pilot.ingest.analysis import add_surroundings, decode_mesh, read_objects
from pilot.ingest.analysis import analyze as find_problems
from pilot.ingest.files.documents import Document, SyntaxFault, read_document
from pilot.lib.suggestion import did_you_mean
from pilot.lib.text import one_line, printable_path
from pilot.mesh.analysis.listed import CHECKS
from pilot.mesh.analysis.mesh import MESH
from pilot.settings.parse import load

FOUND = 79
"""Exit status if problems are found. It is the same as istioctl's."""
_PROVIDER = re.compile(r"extensionProviders\[(\d{1,9})\]", re.ASCII)
_USE_KUBE = "--use-kube"


class _AnalyzeCommand(click.Command):
    """A command whose option -k takes a value after =, as in istioctl, so that a file may follow it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        for position, (word, following) in enumerate(itertools.pairwise([*args, "--"])):
            name, equals, value = word.partition("=")
            if word == "--":
                break
            if name in ("-k", _USE_KUBE) and (equals or following.lower() not in click.BOOL.bool_states):
                words[position] = f"{_USE_KUBE}={value if equals else 'true'}"
        return super().parse_args(ctx, words)


@click.command(cls=_AnalyzeCommand)
@click.argument("files", nargs=-1)
@click.option("-f", "--filename", "more_files", multiple=True, hidden=True)  # as in validate
@click.option(
    "--meshConfigFile",
    "mesh_config",
    type=click.Path(exists=True, dir_okay=False),
    help="mesh config to check the files with",
)
@with_selection
@click.option(
    "--failure-threshold",
    "threshold",
    type=click.Choice(SEVERITIES, case_sensitive=False),
    default="error",
    show_default=True,
    help="lowest severity that makes the command fail",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    show_default=True,
    help="output format",
)
@click.option(
    "--analyzer",
    "names",
    multiple=True,
    metavar="NAME",
    help="only the findings of this analyzer of istioctl, such as injection.Analyzer; may be repeated",
)
@click.option("-L", "--list-analyzers", "only_list", is_flag=True, help="list the names for --analyzer, and stop")
@click.option(
    "-k",
    _USE_KUBE,
    "use_kube",
    type=bool,
    is_flag=False,
    flag_value="true",
    help="with FILES: check them together with the objects of the cluster; without FILES: fail if no API server is "
    "reachable, or with =false do not try",
)
@click.option(
    "--remote-contexts",
    "contexts",
    multiple=True,
    metavar="CONTEXT",
    help="kubeconfig context of another cluster, whose Services are compared; may be repeated",
)
@with_connection
@click.option("-r", "--revision", default="", help="revision of the mesh config (default: that of the tag default)")
@with_cluster
def analyze(
    cluster: Cluster,
    files: tuple[str, ...],
    more_files: tuple[str, ...],
    mesh_config: str | None,
    selection: Selection,
    threshold: str,
    form: str,
    names: tuple[str, ...],
    only_list: bool,
    use_kube: bool | None,
    contexts: tuple[str, ...],
    revision: str,
) -> None:
    """Check configuration in files, or the configuration of a running control plane and its cluster.

    FILES are files and directories of YAML and JSON; - is standard input. With --use-kube=true, they are checked as if
    they were applied to a cluster. Without FILES, the configuration of a running control plane is checked, and the
    objects of its cluster that it does not read. Each object is checked by itself and against the other objects, with
    the rules of the control plane. The exit status is 79 if a problem reaches the failure threshold, and 1 if nothing
    was checked.
    """
    if only_list:
        rows = [(name, codes_of(name)) for name in ANALYZER_NAMES]
        show(CommandResult([dict(zip(("name", "codes"), row, strict=True)) for row in rows], [_table(rows)]), form)
        return
    analyzers = _selected(names)
    files += more_files
    if files and contexts:
        raise click.UsageError("--remote-contexts compares the Services of clusters: omit FILES")
    if files:
        ctx = click.get_current_context()
        if use_kube is None and (remembered(ctx, "kubeconfig") or remembered(ctx, "context")):
            click.echo("Note: only the files are checked; -k checks them together with the cluster's objects", err=True)
        around = _surroundings(cluster, analyzers) if use_kube else None
        reports, checked = _of_files(files, mesh_config, selection.namespace, analyzers, around, revision)
    else:
        control_plane = connect(click.get_current_context())
        try:
            reports, checked = _of_control_plane(control_plane, selection)
        finally:
            report_missing(control_plane)
        if use_kube is not False:
            more, note = _of_cluster(cluster, contexts, analyzers, use_kube, revision)
            reports, checked = [*reports, *more], f"{checked} {note}"
    selected = [report for report in reports if not names or belongs_to(report, names)]
    findings = selection.apply(_without_repeated_conditions(selected))
    where = f" in namespace {selection.namespace}" if selection.namespace else ""
    result = selection.show(findings, f"✔ No validation issues found{where}.")
    show(result._replace(parts=[*result.parts, checked]), form)
    if any(reaches(finding, threshold) for finding in findings):
        click.get_current_context().exit(FOUND)


def _table(rows: list[tuple[str, str]]) -> TextTable:
    return TextTable(("ANALYZER", "CODES"), rows)


def _selected(names: Collection[str]) -> list[Analyzer]:
    """Return the analyzers with some names, or all of them if there are no names. Raise UsageError for other names."""
    for name in names:
        if name not in ANALYZER_NAMES:
            hint = did_you_mean(name, ANALYZER_NAMES) or "; --list-analyzers lists the names"
            raise click.UsageError(f"--analyzer {one_line(name)!r}: no such analyzer{hint}")
    return [analyzer for analyzer in ANALYZERS if not names or analyzer.name in names]


def _of_control_plane(client: Replicas, selection: Selection) -> tuple[list[Finding], str]:
    """Return the problems in the configuration of a control plane, and the line that says what was checked."""
    query = {"namespace": selection.namespace} if selection.namespace else {}
    return client.get("problemz", **query), f"Checked the configuration of the control plane at {client.address}."


def _without_repeated_conditions(reports: list[Finding]) -> list[Finding]:
    """Return the findings without the conditions in the status of an object that the control plane reports itself."""
    reported: dict[tuple[Any, ...], list[str]] = {}
    for one in reports:
        if one["code"] != NEGATIVE_CONDITION:
            reported.setdefault(_object_of(one), []).append(str(one["message"]))
    return [
        one
        for one in reports
        if one["code"] != NEGATIVE_CONDITION
        or not any(str(one["message"]).endswith(f": {message}") for message in reported.get(_object_of(one), ()))
    ]


def _object_of(finding: Finding) -> tuple[Any, ...]:
    return tuple(finding.get(field, "") for field in ("group", "kind", "namespace", "name"))


def _of_cluster(
    cluster: Cluster, contexts: Iterable[str], analyzers: Collection[Analyzer], is_required: bool | None, revision: str
) -> tuple[list[Finding], str]:
    """Return the problems of the objects of a cluster, and the sentence that says what was checked.

    Raise CommandError if an API server is unreachable and `is_required` is true, or if a context is unusable.
    """
    kinds = dict.fromkeys(kind for analyzer in analyzers for kind in analyzer.kinds)
    try:
        read: ClusterObjects = cluster.run(lambda client, _: read_cluster(client, kinds))
    except CommandError as error:
        if is_required or contexts:
            raise
        return [], f"Objects that it does not read, such as Deployments, were not checked: {error}."
    objects = [*read.objects, *(one for context in contexts for one in _services(cluster.in_context(context), context))]
    problems = run_analyzers(
        _usable(analyzers, read), AnalyzedObjects(objects, mesh_config_of(read.objects, revision), is_live=True)
    )
    return [plain_problem(problem) for problem in problems], f"Checked {_count(len(objects), 'object')} of the cluster."


def _usable(analyzers: Iterable[Analyzer], read: ClusterObjects) -> list[Analyzer]:
    """Return the analyzers whose kinds could be listed. Name the others on standard error."""
    skipped: dict[GroupKind, list[str]] = {kind: [] for kind in read.denied}
    usable = []
    for analyzer in analyzers:
        denied = [kind.id for kind in analyzer.kinds if kind.id in read.denied]
        for kind in denied:
            skipped[kind].append(analyzer.name)
        usable += [] if denied else [analyzer]
    for kind, names in skipped.items():
        effect = f"; not checked: {', '.join(names)}" if names else ""
        click.echo(f"! {kind.name} objects cannot be listed: {one_line(read.denied[kind])}{effect}", err=True)
    return usable


def _surroundings(cluster: Cluster, analyzers: Iterable[Analyzer]) -> ClusterObjects:
    """Return the objects of a cluster that affect files. Raise CommandError if the API server is unreachable."""
    others = (kind for analyzer in analyzers for kind in analyzer.kinds if CATALOGUE.find(kind.id) is None)
    kinds = dict.fromkeys((*mesh_kinds(), *others))
    return cluster.run(lambda client, _: read_cluster(client, kinds))


def _services(cluster: Cluster, context: str) -> list[AnalyzedObject]:
    """Return the Services of another cluster."""
    return cluster.run(lambda client, _: read_cluster(client, (SERVICE,), context)).objects


def _of_files(
    files: Iterable[str],
    mesh_config: str | None,
    namespace: str | None,
    analyzers: Collection[Analyzer],
    around: ClusterObjects | None,
    revision: str,
) -> tuple[list[Finding], str]:
    """Return the problems in files, and the line that says what was checked. Raise CommandError if nothing was.

    If `around` is set, these are the problems of a cluster to which the files are applied.
    """
    texts = read_files(files)
    mesh, problems, mesh_document = _mesh(mesh_config)
    with step_progress() as on_step:
        objects = read_objects(texts, on_step)
    analyzed = AnalyzedObjects(objects_in(objects.documents), mesh)
    ignored = objects.ignored - analyzed.count(_only_analyzed(analyzers))
    checked = objects.count - ignored
    contents = f"{_count(objects.count, 'object')} in {_count(len(texts), 'file')}"
    if not any(text.strip() for text in texts.values()):
        first = "standard input" if [*texts] == [STANDARD_INPUT] else printable_path(next(iter(texts)))
        raise CommandError(
            f"nothing was checked: {first if len(texts) == 1 else f'each of {len(texts)} files'} is empty"
        )
    if not (checked or objects.problems):
        kinds = ", and none of a kind that a mesh uses" if objects.count else ""
        raise CommandError(f"nothing was checked: found {contents}{kinds}")
    namespaces = analyzed.namespaces | {
        ref.namespace for ref in (*objects.places, *(p.object for p in objects.problems))
    }
    if namespace is not None and namespace not in namespaces:
        others = ", ".join(sorted(filter(None, namespaces))) or "none"
        raise CommandError(f"no object is in the namespace {namespace!r}; namespaces of the objects: {others}")
    if around is not None:
        mesh = mesh if mesh_config else mesh_config_of(around.objects, revision)
        analyzers = _usable(analyzers, around)
        add_surroundings(objects, (one.plain for one in around.objects))
        analyzed = AnalyzedObjects([*objects_in(objects.documents), *around.objects], mesh, is_live=True)
    with step_progress() as on_step:
        file_problems = find_problems(objects, mesh, load([], os.environ).settings.mesh, CHECKS, on_step)
    others = f"; {_count(ignored, 'object')} of other kinds ignored" if ignored else ""
    context = f" together with {_count(len(around.objects), 'object')} of the cluster" if around is not None else ""
    line = f"Checked {_count(checked, 'object')} in {_count(len(texts), 'file')}{context}{others}."
    if mesh_document is not None:
        file_problems = [_placed_provider(p, mesh, mesh_document, mesh_config or "") for p in file_problems]
    elif around is None:
        file_problems = [_with_mesh_option(problem) for problem in file_problems]
    all_problems = (*problems, *file_problems, *run_analyzers(analyzers, analyzed))
    return [plain_problem(problem) for problem in all_problems], line


def _only_analyzed(analyzers: Iterable[Analyzer]) -> set[GroupKind]:
    """Return the kinds that analyzers read, and control planes do not."""
    return {kind.id for analyzer in analyzers for kind in analyzer.kinds if CATALOGUE.find(kind.id) is None}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _mesh(path: str | None) -> tuple[MeshConfig, list[Problem], Document | None]:
    """Return the mesh config in a file, or the default, its problems and the document. Raise CommandError if it is not
    YAML."""
    if path is None:
        return *decode_mesh(None), None
    try:
        document = read_document(read_files([path])[path], path)
    except SyntaxFault as fault:
        raise CommandError(f"{path}:{fault.line}: {fault}") from fault
    mesh, problems = decode_mesh(document.plain)
    placed = [msgspec.structs.replace(p, file=path, line=document.line_of(p.path)) for p in problems]
    return mesh, [_placed_provider(p, mesh, document, path) for p in placed], document


def _with_mesh_option(problem: Problem) -> Problem:
    """Return the problem of a missing extension provider with the option that names the mesh config."""
    if problem.code != "provider-not-found":
        return problem
    hint = "this is the default mesh config; --meshConfigFile FILE names that of the mesh"
    return msgspec.structs.replace(problem, message=f"{problem.message}; {hint}")


def _placed_provider(problem: Problem, mesh: MeshConfig, document: Document, file: str) -> Problem:
    """Return the problem of an extension provider with its place in the file.

    In the mesh config, the built-in providers precede those of the file.
    """
    match = _PROVIDER.match(problem.path) if problem.object.kind == MESH.kind else None
    listed = document.plain.get("extensionProviders") if match and isinstance(document.plain, dict) else None
    if match is None or not isinstance(listed, list) or int(match[1]) >= len(mesh.extension_providers):
        return problem
    name = mesh.extension_providers[int(match[1])].name
    names = [one.get("name", "") if isinstance(one, dict) else None for one in listed]
    if name not in names:
        return problem
    path = f"extensionProviders[{names.index(name)}]{problem.path[match.end() :]}"
    return msgspec.structs.replace(problem, path=path, file=file, line=document.line_of(path))

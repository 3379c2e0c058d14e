"""Findings: problems in configuration, as `problems` and `analyze` select and print them."""

from __future__ import annotations

import fnmatch
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import click
from rich.text import Text

from pilot.cli.ctl.completions import complete_namespaces
from pilot.cli.ctl.istio_codes import istio_code
from pilot.cli.ctl.object_reference import parse_object
from pilot.cli.ctl.output import SEVERITY_STYLES, CommandResult, kind_of, name_of, place_of
from pilot.cli.ctl.request_texts import ANY_NAMESPACE
from pilot.config.catalogue import CATALOGUE
from pilot.lib.text import one_line
from pilot.mesh.analysis.nack import REJECTED

Function = TypeVar("Function", bound=Callable[..., Any])
Finding = dict[str, Any]
SEVERITIES = ("info", "warning", "error")
_PLURAL = {"info": "for information", "warning": "warnings", "error": "errors"}


class Suppression(NamedTuple):
    """A finding that the user accepts: its code or istioctl's, and patterns of the kind, namespace and name."""

    text: str
    code: str
    kind: str
    namespace: str
    name: str

    def covers(self, finding: Finding) -> bool:
        """Return whether the suppression applies to a finding."""
        return self.code in (finding["code"], finding.get("istioCode")) and all(
            fnmatch.fnmatchcase(finding.get(field, "").lower(), pattern.lower())
            for field, pattern in (("kind", self.kind), ("namespace", self.namespace), ("name", self.name))
        )


class Selection(NamedTuple):
    """The findings that the user asks for. Those below `threshold` are counted but not listed."""

    namespace: str | None
    suppressions: tuple[Suppression, ...]
    threshold: str

    def apply(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return the selected findings, the worst first. Name the suppressions without effect on standard error."""
        unused = {suppression.text for suppression in self.suppressions}
        selected = []
        for finding in map(_with_istio_code, findings):
            matching = [suppression.text for suppression in self.suppressions if suppression.covers(finding)]
            unused.difference_update(matching)
            if not matching and self._has_namespace(finding):
                selected.append(finding)
        for text in sorted(unused):
            click.echo(f"--suppress {one_line(text)} matches no finding", err=True)
        return sorted(selected, key=_order)

    def _has_namespace(self, finding: Finding) -> bool:
        """Return whether a finding is in the namespace, or a rejection, which the server selects by its proxy."""
        return self.namespace in (None, _namespace_of(finding)) or finding["code"] == REJECTED

    def show(self, findings: list[Finding], nothing: str) -> CommandResult:
        """Return the listed findings as the result of a command. `nothing` is the line to print if there are none."""
        listed = [finding for finding in findings if reaches(finding, self.threshold)]
        others = [finding for finding in findings if not reaches(finding, self.threshold)]
        is_sound = not any(reaches(finding, "warning") for finding in findings)
        end = [f"{summary(listed)}."] if listed else [nothing] if is_sound else []
        if others:
            end.append(f"Not listed: {summary(others)} (--output-threshold {others[-1]['severity']} lists them).")
        return CommandResult(listed, [*lines(listed), *end])


def _namespace_of(finding: Finding) -> str:
    """Return the namespace of a finding's object, which may be a namespace itself."""
    return str(finding.get("name" if finding.get("kind") == "Namespace" else "namespace", ""))


def _order(finding: Finding) -> tuple[Any, ...]:
    """Return the sort key: the worst findings first, then by file and line, or by object.

    Rejections by proxies come after mistakes of the same severity, which may be their causes.
    """
    place = finding.get("file", ""), finding.get("line", 0), name_of(finding), finding.get("path", "")
    return -SEVERITIES.index(finding["severity"]), finding["code"] == "refused", *place


def reaches(finding: Finding, severity: str) -> bool:
    """Return whether a finding is of a severity or of a worse one."""
    return SEVERITIES.index(finding["severity"]) >= SEVERITIES.index(severity)


def with_selection(function: Function) -> Function:
    """Add the options that select findings to a command, and pass it a Selection as `selection`."""

    @click.option(
        "-n",
        "--namespace",
        type=ANY_NAMESPACE,
        metavar="NAMESPACE",
        help="only objects and proxies in this namespace",
        shell_complete=complete_namespaces,
    )
    @click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="objects in all namespaces (default)")
    @click.option(
        "-S",
        "--suppress",
        "suppressed",
        multiple=True,
        metavar="CODE=KIND/NAME",
        help="omit a finding, such as IST0101=VirtualService/shop/web or port-not-said=*/*; the namespace is optional, "
        "and * stands for any text; may be repeated",
    )
    @click.option(
        "--output-threshold",
        "level",
        type=click.Choice(SEVERITIES, case_sensitive=False),
        default="warning",
        show_default=True,
        help="lowest severity to list",
    )
    @functools.wraps(function)
    def command(namespace: str | None, everywhere: bool, suppressed: tuple[str, ...], level: str, **more: Any) -> Any:
        if everywhere and namespace is not None:
            raise click.UsageError("--namespace and --all-namespaces are mutually exclusive")
        return function(selection=Selection(namespace, tuple(map(parse_suppression, suppressed)), level), **more)

    return command  # type: ignore[return-value]


def parse_suppression(text: str) -> Suppression:
    """Return the suppression that a text such as "IST0101=VirtualService/shop/web" describes.

    As in istioctl, the object may also be written as "VirtualService web.shop". Raise UsageError for other texts.
    """
    code, _, subject = text.partition("=")
    reference = parse_object([subject] if "/" in subject else subject.split(" ", 1))
    if not code or reference is None:
        raise click.UsageError(f"--suppress {text!r}: expected CODE=KIND/NAME, such as IST0101=VirtualService/shop/web")
    kinds = CATALOGUE.named(reference.kind)
    kind = kinds[0].id.name if kinds else reference.kind
    return Suppression(text, code, kind, reference.namespace or "*", reference.name)


def _with_istio_code(finding: Finding) -> Finding:
    code = istio_code(finding)
    return finding | {"istioCode": code} if code else finding


def lines(findings: Iterable[Finding]) -> Iterator[Text]:
    """Yield a line for each finding, in the format of istioctl's messages with the path of the field."""
    for finding in findings:
        severity = finding["severity"]
        subject = " ".join(part for part in (kind_of(finding), name_of(finding), place_of(finding)) if part)
        codes = " ".join(part for part in (finding.get("istioCode"), finding["code"]) if part)
        path = f"{finding['path']}: " if finding.get("path") else ""
        yield Text.assemble(
            (severity.capitalize(), SEVERITY_STYLES.get(severity, "")),
            one_line(f" [{codes}]{f' ({subject})' if subject else ''} {path}{finding['message']}"),
        )


def summary(findings: Iterable[Finding]) -> str:
    """Return the number of findings of each severity, such as "2 errors, 1 warning"."""
    counts = Counter(finding["severity"] for finding in findings)
    return ", ".join(
        f"{counts[severity]} {severity if counts[severity] == 1 and severity != 'info' else _PLURAL[severity]}"
        for severity in reversed(SEVERITIES)
        if counts[severity]
    )

"""Groups differing resources by cause: a known difference, or the object that they follow from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pilot.config.problem import ObjectRef
from pilot.shadow.attribution import example_leaf
from pilot.shadow.known_differences import KnownDifference, ShadowVerdict, find_known
from pilot.shadow.resource_comparison import DifferingResource

MOST_ATTRIBUTIONS = 300
"""Maximum number of resources that are attributed. Resources that differ in the same fields share the object."""
SHOWN_CHARACTERS = 160
_LABEL = re.compile(r"\[[^\[\]]*\]")
FindObject = Callable[[DifferingResource], ObjectRef | None]


class DifferenceCause(NamedTuple):
    """Differing resources with the same cause. `object` is the object that they follow from, if there is one."""

    verdict: ShadowVerdict
    reason: KnownDifference | None
    object: ObjectRef | None
    fields: tuple[str, ...]
    resources: list[DifferingResource]

    @property
    def proxies(self) -> int:
        """The number of proxies that have such a resource."""
        return len({proxy.node_id for one in self.resources for proxy in one.proxies})

    def show(self) -> dict[str, Any]:
        """Return the cause as a JSON object."""
        one = self.resources[0]
        leaf = example_leaf(one)
        return {
            "verdict": self.verdict.value,
            "object": shown_object(self.object),
            "summary": self.reason.summary
            if self.reason is not None
            else f"{one.difference.side.value} {', '.join(self.fields)}",
            "link": self.reason.link if self.reason is not None else "",
            "proxies": self.proxies,
            "resources": len(self.resources),
            "example": {
                "proxy": one.proxies[0].proxy.id,
                "type": one.difference.kind,
                "name": one.difference.name,
                "path": leaf.path,
                "reference": cut_value(leaf.reference),
                "pyistiod": cut_value(leaf.derived),
            },
        }


def shown_object(ref: ObjectRef | None) -> dict[str, str]:
    """Return an object reference as a JSON object, or {}."""
    if ref is None:
        return {}
    fields = {"group": ref.kind.group, "kind": ref.kind.name, "namespace": ref.namespace, "name": ref.name}
    return {name: text for name, text in fields.items() if text}


def cut_value(value: Any) -> Any:
    """Return a value of a leaf, cut if it is a long text."""
    return value[:SHOWN_CHARACTERS] + "…" if isinstance(value, str) and len(value) > SHOWN_CHARACTERS else value


def signature(one: DifferingResource) -> tuple[str, ...]:
    """Return the type and the fields in which a resource differs, without the names of list items."""
    difference = one.difference
    fields = sorted({_LABEL.sub("[]", leaf.path) for leaf in difference.leaves if leaf.path})
    return (difference.kind, difference.side.value, *fields)


def find_causes(differing: Iterable[DifferingResource], find_object: FindObject) -> list[DifferenceCause]:
    """Return the causes of differences, unexplained ones and those of most proxies first."""
    causes: dict[Any, DifferenceCause] = {}
    objects: dict[tuple[str, ...], ObjectRef | None] = {}
    attributions = 0
    for one in differing:
        reason, fields = find_known(one.difference), signature(one)
        ref = objects.get((*fields, one.difference.name))
        if ref is None and attributions < MOST_ATTRIBUTIONS:
            attributions += 1
            ref = objects[(*fields, one.difference.name)] = find_object(one)
            objects.setdefault(fields, ref)
        elif ref is None:
            ref = objects.get(fields)
        verdict = reason.verdict if reason is not None else ShadowVerdict.UNEXPLAINED
        key = reason.id if reason is not None else ref or fields
        cause = causes.setdefault(key, DifferenceCause(verdict, reason, ref, (), []))
        cause.resources.append(one)
        causes[key] = cause._replace(fields=tuple(dict.fromkeys((*cause.fields, *_shown_fields(fields)))))
    return sorted(
        causes.values(), key=lambda c: (c.verdict is not ShadowVerdict.UNEXPLAINED, -c.proxies, -len(c.resources))
    )


def _shown_fields(fields: tuple[str, ...]) -> list[str]:
    """Return the last parts of the fields that differ, or the type if the whole resource does."""
    kind, _, *paths = fields
    return [path.rpartition(".")[2] for path in paths] or [kind]

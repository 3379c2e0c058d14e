"""Selectors and target references of policies."""

from __future__ import annotations

from pilot.config.base import Strict


class WorkloadSelector(Strict, frozen=True):
    match_labels: dict[str, str] = {}


class PolicyTargetReference(Strict, frozen=True):
    group: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


class LabelSelector(Strict, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class LabelSelectorRequirement(Strict, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

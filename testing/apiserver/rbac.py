"""Authorization by the Roles, ClusterRoles and their bindings in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from testing.apiserver.resource import RBAC
from testing.apiserver.store import Plain, Store
from testing.apiserver.tokens import Authorizer


def rbac_authorizer(store: Store) -> Authorizer:
    """Return an authorizer that evaluates the roles currently in the store."""

    def allows(user: str, groups: Sequence[str], attributes: Mapping[str, Any]) -> bool:
        return any(_grants(rule, attributes) for rule in _rules(store, user, groups, attributes.get("namespace") or ""))

    return allows


def _rules(store: Store, user: str, groups: Sequence[str], namespace: str) -> Iterator[Plain]:
    for binding in _objects(store, "clusterrolebindings"):
        if _binds(binding, user, groups):
            yield from _rules_of(store, binding, "")
    for binding in _objects(store, "rolebindings"):
        if namespace and binding["metadata"]["namespace"] == namespace and _binds(binding, user, groups):
            yield from _rules_of(store, binding, namespace)


def _objects(store: Store, plural: str) -> Iterator[Plain]:
    for stored in store.collection((RBAC, plural)).objects.values():
        yield stored.plain


def _binds(binding: Plain, user: str, groups: Sequence[str]) -> bool:
    for subject in binding.get("subjects") or ():
        namespace = subject.get("namespace") or binding["metadata"].get("namespace")
        account = f"system:serviceaccount:{namespace}:{subject['name']}"
        if subject["kind"] == "Group" and subject["name"] in groups:
            return True
        if user == (
            account if subject["kind"] == "ServiceAccount" else subject["name"] if subject["kind"] == "User" else None
        ):
            return True
    return False


def _rules_of(store: Store, binding: Plain, namespace: str) -> list[Plain]:
    reference = binding["roleRef"]
    key = (namespace, reference["name"]) if reference["kind"] == "Role" else ("", reference["name"])
    role = store.get((RBAC, "roles" if reference["kind"] == "Role" else "clusterroles"), key)
    return role.plain.get("rules") or [] if role is not None else []


def _grants(rule: Plain, attributes: Mapping[str, Any]) -> bool:
    subresource = attributes.get("subresource")
    resource = f"{attributes['resource']}/{subresource}" if subresource else attributes["resource"]
    names = rule.get("resourceNames")
    return (
        _has(rule.get("apiGroups"), attributes["group"])
        and _has(rule.get("resources"), resource)
        and _has(rule.get("verbs"), attributes["verb"])
        and (not names or attributes.get("name") in names)
    )


def _has(words: Any, word: str) -> bool:
    return word in (words or ()) or "*" in (words or ())

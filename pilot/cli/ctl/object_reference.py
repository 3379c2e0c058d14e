"""References to objects on the command line. All commands and options that name objects use this module."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import click

from pilot.config.catalogue import CATALOGUE
from pilot.config.kinds.kubernetes import SERVICE

FORMS = "KIND/NAME, KIND/NAMESPACE/NAME or KIND NAME.NAMESPACE"


class ObjectArgument(NamedTuple):
    """An object as a user names it. `kind` may be a short name such as vs, and `namespace` is "" if it is not given."""

    kind: str
    namespace: str
    name: str


def parse_object(words: Sequence[str]) -> ObjectArgument | None:
    """Return the object that one or two words name, or None for other words.

    The forms are those of FORMS, KIND NAMESPACE/NAME and, for Services, KIND/NAME.NAMESPACE.
    """
    kind, rest = words if len(words) == 2 else words[0].partition("/")[::2]
    namespace, slash, name = rest.partition("/")
    if not slash and (len(words) == 2 or SERVICE in CATALOGUE.named(kind)):
        name, dot, namespace = rest.rpartition(".")
        name, namespace = (name, namespace) if dot else (rest, "")
    elif not slash:
        name, namespace = rest, ""
    is_complete = kind and name and "/" not in kind + name and (namespace or not slash)
    return ObjectArgument(kind, namespace, name) if is_complete else None


def parse_objects(arguments: Sequence[str], namespace: str) -> list[ObjectArgument]:
    """Return the objects that the arguments of a command name. `namespace` is that of names without a namespace.

    Raise BadParameter if an argument has another form or names another namespace.
    """
    is_pair = len(arguments) == 2 and "/" not in arguments[0]
    return [_parse(words, namespace) for words in ([arguments] if is_pair else [[one] for one in arguments])]


def _parse(words: Sequence[str], namespace: str) -> ObjectArgument:
    if "." in words[-1] and os.path.isfile(words[-1]):
        raise click.BadParameter(f"{words[-1]!r} is a file: use -f {words[-1]}", param_hint="'KIND/NAME'")
    reference = parse_object(words)
    if reference is None:
        raise click.BadParameter(f"{' '.join(words)!r} is not {FORMS}", param_hint="'KIND/NAME'")
    if namespace and reference.namespace not in ("", namespace):
        raise click.BadParameter(
            f"{' '.join(words)!r} is in the namespace {reference.namespace}, and --namespace is {namespace}",
            param_hint="'KIND/NAME'",
        )
    return reference._replace(namespace=reference.namespace or namespace)

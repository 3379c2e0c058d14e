"""Parses the webhook's path, which contains environment variables of the proxy:
/inject/cluster/NAME/net/NETWORK/KEY/value."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.inject.injection import CLUSTER_VARIABLE, NETWORK_VARIABLE

_NAMES = {"cluster": CLUSTER_VARIABLE, "net": NETWORK_VARIABLE}
_OLD_MARK = ":ENV:"
_SLASH = "--slash--"


def environment_of(path: str) -> dict[str, str]:
    """Return the environment variables in a path. A key without a value is ignored. --slash-- in a value stands for a
    slash."""
    parts = path.removesuffix("/").split("/", 2)
    if len(parts) < 3:
        return {}
    rest = parts[2]
    if rest.startswith(_OLD_MARK):
        return dict(_named(_old_pairs(rest)))
    words = rest.split("/")
    return dict(_named(zip(words[::2], (value.replace(_SLASH, "/") for value in words[1::2]), strict=False)))


def _old_pairs(text: str) -> Iterable[tuple[str, str]]:
    for pair in text.split(_OLD_MARK)[1:]:
        key, equals, value = pair.partition("=")
        if key and equals:
            yield key, value


def _named(pairs: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    return ((_NAMES.get(key, key.upper()), value) for key, value in pairs if key)

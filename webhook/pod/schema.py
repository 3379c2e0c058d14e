"""The schema of Pods. It is used to merge and validate Pods, and to present them to templates."""

from __future__ import annotations

import re
from typing import NamedTuple

from webhook.pod.fields import FIELDS

_FIELD = re.compile(
    r"(?P<name>[\w-]+)(?P<written>!)?:(?P<pointer>\*)?(?P<open>[\[{])?(?P<type>\w+)[\]}]?(?P<key>@\w*)?"
)
_GO_NAMES = {
    "uid": "UID",
    "dnsPolicy": "DNSPolicy",
    "dnsConfig": "DNSConfig",
    "tty": "TTY",
    "httpGet": "HTTPGet",
    "tcpSocket": "TCPSocket",
    "grpc": "GRPC",
    "fsGroup": "FSGroup",
    "fsGroupChangePolicy": "FSGroupChangePolicy",
    "ip": "IP",
    "os": "OS",
    "httpHeaders": "HTTPHeaders",
    "nfs": "NFS",
    "iscsi": "ISCSI",
    "rbd": "RBD",
    "fc": "FC",
    "csi": "CSI",
    "seLinuxOptions": "SELinuxOptions",
    "fsType": "FSType",
    "cephfs": "CephFS",
    "gcePersistentDisk": "GCEPersistentDisk",
    "awsElasticBlockStore": "AWSElasticBlockStore",
    "apiVersion": "APIVersion",
    "storageos": "StorageOS",
    "seLinuxChangePolicy": "SELinuxChangePolicy",
    "serviceAccount": "DeprecatedServiceAccount",
}


class SchemaField(NamedTuple):
    """A field of a type.

    `shape` is "" for a single value, "[" for a list and "{" for a map. `zero_is_absent` means that zero equals absence.
    `key` identifies the items of a merged list. If it is None, the list is replaced as a whole. If it is "", the list
    is merged by value.
    """

    name: str
    go_name: str
    type: str
    shape: str
    pointer: bool
    zero_is_absent: bool
    key: str | None


class Type(NamedTuple):
    """A type and its fields, keyed by JSON name and by Go name."""

    name: str
    fields: dict[str, SchemaField]
    by_go_name: dict[str, SchemaField]


def read_types(text: str) -> dict[str, Type]:
    """Parse a list of types in the format of `FIELDS`."""
    types = {}
    for line in filter(None, text.splitlines()):
        name, _, rest = line.partition(" ")
        fields = [_field(match) for match in _FIELD.finditer(rest)]
        types[name] = Type(name, {f.name: f for f in fields}, {f.go_name: f for f in fields})
    return types


def _field(match: re.Match[str]) -> SchemaField:
    name = match["name"]
    pointer = bool(match["pointer"])
    key = match["key"]
    return SchemaField(
        name,
        _GO_NAMES.get(name, name[0].upper() + name[1:]),
        match["type"],
        match["open"] or "",
        pointer,
        not pointer and not match["written"],
        key[1:] if key is not None else None,
    )


TYPES = read_types(FIELDS)
POD = TYPES["Pod"]
CONTAINER = TYPES["Container"]

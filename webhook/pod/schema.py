"""The types of Pods, by which they are merged, checked, and shown to templates."""

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
    """A field of a type. `shape`: "" for one value, [ for a list, { for a map. `zero_is_absent`: zero and absent are the same.
    `key`: by which the items of a list are the same, None where a list is merged as a whole, "" where its values are."""

    name: str
    go_name: str
    type: str
    shape: str
    pointer: bool
    zero_is_absent: bool
    key: str | None


class Type(NamedTuple):
    """A type with fields, by their names in JSON and in Go."""

    name: str
    fields: dict[str, SchemaField]
    by_go_name: dict[str, SchemaField]


def read_types(text: str) -> dict[str, Type]:
    """Returns the types that a text like `FIELDS` lists, by their names."""
    types = {}
    for line in filter(None, text.splitlines()):
        name, _, rest = line.partition(" ")
        fields = [_field(found) for found in _FIELD.finditer(rest)]
        types[name] = Type(name, {f.name: f for f in fields}, {f.go_name: f for f in fields})
    return types


def _field(found: re.Match[str]) -> SchemaField:
    name = found["name"]
    pointer = bool(found["pointer"])
    key = found["key"]
    return SchemaField(
        name,
        _GO_NAMES.get(name, name[0].upper() + name[1:]),
        found["type"],
        found["open"] or "",
        pointer,
        not pointer and not found["written"],
        key[1:] if key is not None else None,
    )


TYPES = read_types(FIELDS)
POD = TYPES["Pod"]
CONTAINER = TYPES["Container"]

"""Credentials in a kubeconfig that need neither a program nor a request: certificates and tokens.

Importing the `kubernetes` package takes most of the time of a command. It is needed only for the other kinds, and it
reports what is invalid.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from pilot.kube.access import Access, TlsFiles

_CLUSTER = frozenset(
    (
        *("server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"),
        *("tls-server-name", "proxy-url", "disable-compression", "extensions"),
    )
)
_USER = frozenset(
    (
        *("client-certificate", "client-certificate-data", "client-key", "client-key-data", "token", "tokenFile"),
        "extensions",
    )
)
"""Fields with a meaning that this module knows."""
_files: dict[bytes, str] = {}


def read_access(config: Any, context: str = "", folder: str = "") -> Access | None:
    """Return the access parameters in a kubeconfig, or None if they have to be read by the `kubernetes` package.

    Paths are relative to `folder`. If `context` is "", the current context is used.
    """
    try:
        selected = _named(config["contexts"], context or config["current-context"])["context"]
        cluster = _named(config["clusters"], selected["cluster"])["cluster"]
        user = _named(config["users"], selected["user"])["user"] or {}
        if not (_CLUSTER.issuperset(cluster) and _USER.issuperset(user)):
            return None
        return _access(cluster, user, folder)
    except (KeyError, TypeError, ValueError, OSError):
        return None


def _named(entries: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """Return the entry with a name. Raise ValueError if there are several or none."""
    (entry,) = (entry for entry in entries if entry["name"] == name)
    return entry


def _access(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: str) -> Access:
    server = cluster["server"].rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise ValueError(server)
    tls = None
    if server.startswith("https://"):
        tls = TlsFiles(
            _file(cluster, "certificate-authority", folder),
            _file(user, "client-certificate", folder),
            _file(user, "client-key", folder),
            cluster.get("tls-server-name"),
            not cluster.get("insecure-skip-tls-verify", False),
        )
    token = _token(user, folder)
    return Access(server, f"Bearer {token}" if token else "", tls, cluster.get("proxy-url") or "")


def _token(user: Mapping[str, Any], folder: str) -> str:
    if "token" in user or "tokenFile" not in user:
        return str(user.get("token", "")).strip()
    with open(os.path.join(folder, user["tokenFile"]), encoding="utf-8") as file:
        return file.read().strip()


def _file(fields: Mapping[str, Any], name: str, folder: str) -> str | None:
    """Return the path of a file that a field names, or of a file with its data. Raise OSError if it does not exist."""
    if data := fields.get(f"{name}-data"):
        return _temporary_file(base64.standard_b64decode(data))
    if f"{name}-data" in fields or name not in fields:
        return None
    path = os.path.normpath(os.path.join(folder, fields[name]))
    os.stat(path)
    return path


def _temporary_file(content: bytes) -> str:
    """Return the path of a file with some content, which is removed when the process ends."""
    if not _files:
        atexit.register(_remove_files)
    if content not in _files or not os.path.isfile(_files[content]):
        descriptor, _files[content] = tempfile.mkstemp()
        with open(descriptor, "wb") as file:
            file.write(content)
    return _files[content]


def _remove_files() -> None:
    for path in _files.values():
        with contextlib.suppress(OSError):
            os.remove(path)

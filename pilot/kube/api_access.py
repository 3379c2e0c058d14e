"""The address and credentials of an API server.

The `kubernetes` package supports exec plugins and OIDC tokens, and reports what is invalid in a kubeconfig.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from pilot.kube.access import Access, TlsFiles
from pilot.kube.api_errors import ConfigurationError
from pilot.kube.plain_credentials import read_access
from pilot.lib.suggestion import choices

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Folder in which Kubernetes puts the token of a Pod and the root certificates of the API server."""


class Credentials(Protocol):
    """A source of access parameters. They are reloaded after `ttl` seconds, because tokens in files are rotated."""

    ttl: float

    async def load(self) -> Access: ...


class InCluster:
    """The service account of the Pod that this process runs in."""

    ttl = 60.0

    async def load(self) -> Access:
        """Return the access parameters. Raise ConfigurationError if the process does not run in a Pod."""
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
        try:
            if not (host and port):
                raise OSError("KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set")
            with open(f"{SERVICE_ACCOUNT}/token", encoding="utf-8") as file:
                token = file.read().strip()
            if not token or not os.path.getsize(f"{SERVICE_ACCOUNT}/ca.crt"):
                raise OSError(f"a file in {SERVICE_ACCOUNT} is empty")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"cannot use the service account of this Pod: {error}") from error
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return Access(server, f"Bearer {token}", TlsFiles(f"{SERVICE_ACCOUNT}/ca.crt"))

    def namespace(self) -> str:
        """Return the namespace of the Pod, or "" if it is unknown."""
        try:
            with open(f"{SERVICE_ACCOUNT}/namespace", encoding="utf-8") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError):
            return ""


class KubeconfigFile:
    """A kubeconfig file, or several files separated by colons. If `context` is "", the current context is used."""

    ttl = 300.0

    def __init__(self, path: str, context: str = "") -> None:
        self._path, self._context = path, context

    async def load(self) -> Access:
        """Return the access parameters. Raise ConfigurationError if the file does not provide any."""
        path = os.path.expanduser(self._path)
        files = [file for file in path.split(os.pathsep) if os.path.isfile(file)]
        if not files:
            reason = "a folder, not a file" if os.path.isdir(path) else "no such file"
            raise ConfigurationError(f"kubeconfig {self._path}: {reason}; set --kubeconfig or KUBECONFIG to a file")
        contents = [_parse(file) for file in files]
        contexts = [context["name"] for content in contents for context in content.get("contexts") or ()]
        if not self._context and len(contexts) > 0 and not any(c.get("current-context") for c in contents):
            names = ", ".join(contexts)
            raise ConfigurationError(f"kubeconfig {self._path}: no current-context; use --context with one of: {names}")
        if self._context and self._context not in contexts:
            names = ", ".join(contexts) or "none"
            raise ConfigurationError(f"kubeconfig {self._path}: no context {self._context!r}; contexts are: {names}")
        if reason := _find_fault(contents, self._context, [os.path.dirname(os.path.abspath(file)) for file in files]):
            raise ConfigurationError(f"kubeconfig {self._path}: {reason}")
        if len(files) == 1:
            access = read_access(contents[0], self._context, os.path.dirname(os.path.abspath(files[0])))
            if access is not None:
                return access
        return await self._load_with_package(path)

    def namespace(self) -> str:
        """Return the namespace of the context, or "" if it has none. Raise ConfigurationError if a file is invalid."""
        files = filter(os.path.isfile, os.path.expanduser(self._path).split(os.pathsep))
        contents = [_parse(file) for file in files]
        context, _ = _entry(contents, "contexts", "context", self._context or _current_context(contents))
        return str((context or {}).get("namespace") or "")

    async def _load_with_package(self, path: str) -> Access:
        from kubernetes.aio import config

        configuration = _new_configuration()
        try:
            with _plugin_errors():
                await config.load_kube_config(
                    path, self._context or None, client_configuration=configuration, persist_config=False
                )
        except Exception as error:  # the package lets other exceptions escape, such as TypeError for a missing section
            raise ConfigurationError(f"kubeconfig {self._path}: {_reason(error)}") from error
        return _access(configuration)


class Kubeconfig:
    """A kubeconfig as plain data."""

    ttl = 300.0

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self._plain = plain

    async def load(self) -> Access:
        """Return the access parameters. Raise ConfigurationError if the data does not provide any."""
        access = read_access(self._plain)
        if access is not None:
            return access
        from kubernetes.aio import config

        configuration = _new_configuration()
        try:
            with _plugin_errors():
                await config.load_kube_config_from_dict(dict(self._plain), client_configuration=configuration)
        except Exception as error:  # see above
            raise ConfigurationError(f"kubeconfig: {_reason(error)}") from error
        return _access(configuration)


class _PluginLog(logging.Handler):
    """Collects the errors of exec plugins, which the `kubernetes` package only logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: ContextVar[list[str] | None] = ContextVar("errors", default=None)

    def emit(self, record: logging.LogRecord) -> None:
        if (errors := self.errors.get()) is not None:
            cause = sys.exception()
            text = _reason(cause) if isinstance(cause, OSError) else record.getMessage()
            errors.append(text.removeprefix("exec: "))


_PLUGIN_LOG = _PluginLog()
_MISSING_ENTRY = re.compile(r"Expected object with name ([^ ]*) in [^ ]*/([a-z]+) list")
"""The error of the `kubernetes` package for a context whose cluster or user does not exist."""


@contextlib.contextmanager
def _plugin_errors() -> Iterator[None]:
    """Return a context manager that raises ConfigurationError if an exec plugin did not provide credentials."""
    logger = logging.getLogger("kubernetes.aio.config.kube_config")
    logger.addHandler(_PLUGIN_LOG)
    logger.propagate = False
    errors: list[str] = []
    token = _PLUGIN_LOG.errors.set(errors)
    try:
        yield
    finally:
        _PLUGIN_LOG.errors.reset(token)
    if errors:
        raise ConfigurationError(f"exec plugin: {errors[0]}")


def _parse(file: str) -> dict[str, Any]:
    """Return the content of a kubeconfig file. Raise ConfigurationError if it is not a kubeconfig."""
    import yaml

    try:
        with open(file, encoding="utf-8") as text:
            plain = yaml.safe_load(text) or {}
    except OSError as error:
        raise ConfigurationError(f"kubeconfig {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"kubeconfig {file}: not a text file in UTF-8") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        reason = f": {problem}" if (problem := getattr(error, "problem", None)) else ""
        raise ConfigurationError(f"kubeconfig {file}: not valid YAML{line}{reason}") from error
    if isinstance(plain, dict) and plain.get("kind") not in (None, "Config"):
        raise ConfigurationError(
            f"kubeconfig {file}: not a kubeconfig, but a {plain['kind']}; of a Secret, decode the value of the key "
            "that has the kubeconfig"
        )
    contexts = (plain.get("contexts") or []) if isinstance(plain, dict) else None
    if not isinstance(contexts, list) or not all(
        isinstance(c, dict) and isinstance(c.get("name"), str) for c in contexts
    ):
        raise ConfigurationError(f"kubeconfig {file}: not a kubeconfig: expected a mapping with a list of contexts")
    return dict(plain)


_FILES = {"clusters": ("certificate-authority",), "users": ("client-certificate", "client-key")}
"""Fields of clusters and users with the path of a file. With the suffix -data, they contain the file itself."""


def _find_fault(contents: list[dict[str, Any]], context: str, folders: list[str]) -> str:
    """Return what is missing for a context, or "".

    The entries of the context, its cluster and its user are the first ones of the name in all files. Paths are relative
    to the folder of the file that contains them.
    """
    name = context or _current_context(contents)
    selected, _ = _entry(contents, "contexts", "context", name)
    for section, field in (("clusters", "cluster"), ("users", "user")):
        reference = (selected or {}).get(field)
        if not reference:
            continue
        if not any(_entries(content, section) for content in contents):
            return f"the context {name!r} names the {field} {reference!r}, and there is no list {section}"
        entry, index = _entry(contents, section, field, reference)
        if index < 0:
            names = [str(one.get("name")) for c in contents for one in _entries(c, section)]
            return (
                f"the context {name!r} names the {field} {reference!r}, which is not in the list {section}"
                f"{choices(str(reference), names)}"
            )
        for file in _FILES[section]:
            if fault := _file_fault(entry or {}, file, folders[index]):
                return f"{section}[{reference}].{field}.{fault}"
    return ""


def _current_context(contents: list[dict[str, Any]]) -> str:
    """Return the name of the current context, which is that of the first file that has one, or ""."""
    return next((str(content["current-context"]) for content in contents if content.get("current-context")), "")


def _entries(content: Mapping[str, Any], section: str) -> list[Mapping[str, Any]]:
    entries = content.get(section)
    return [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []


def _entry(
    contents: list[dict[str, Any]], section: str, field: str, name: object
) -> tuple[Mapping[str, Any] | None, int]:
    """Return the first entry with a name, and the index of its file, or -1 if there is none."""
    for index, content in enumerate(contents):
        for one in _entries(content, section):
            if one.get("name") == name:
                value = one.get(field)
                return (value if isinstance(value, dict) else None), index
    return None, -1


def _file_fault(fields: Mapping[str, Any], name: str, folder: str) -> str:
    """Return the field and the reason if a certificate or key cannot be read, or ""."""
    if data := fields.get(f"{name}-data"):
        try:
            base64.standard_b64decode(data)
        except (TypeError, ValueError) as error:
            pem = f"; for a PEM file, use {name} with its path" if str(data).startswith("-----BEGIN") else ""
            return f"{name}-data: not base64: {error}{pem}"
    elif isinstance(path := fields.get(name), str) and f"{name}-data" not in fields:
        path = os.path.normpath(os.path.join(folder, path))
        if not os.path.isfile(path):
            return f"{name}: {path}: {'a folder, not a file' if os.path.isdir(path) else 'no such file'}"
    return ""


def _reason(error: Exception) -> str:
    """Return why the `kubernetes` package cannot use a kubeconfig."""
    from kubernetes.aio import config

    if isinstance(error, ConfigurationError):
        return str(error)
    if isinstance(error, config.ConfigException):
        text = str(error).removeprefix("Invalid kube-config file. ")
        if match := _MISSING_ENTRY.match(text):
            return f"the context names {match[1]!r}, which is not in the list {match[2]}"
        return text
    if isinstance(error, binascii.Error):
        return f"a field that ends in -data is not base64: {error}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return "expected lists of clusters, contexts and users, and a current-context"


def _new_configuration() -> Any:
    from kubernetes.aio import client

    return client.Configuration()


def _access(configuration: Any) -> Access:
    """Return the access parameters that the `kubernetes` package has loaded."""
    server = (configuration.host or "").rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise ConfigurationError(f"the server of the kubeconfig is {server!r}; it must begin with https:// or http://")
    tls = None
    if server.startswith("https://"):
        tls = TlsFiles(
            configuration.ssl_ca_cert,
            configuration.cert_file,
            configuration.key_file,
            getattr(configuration, "tls_server_name", None),
            configuration.verify_ssl,
        )
    scheme, _, token = (configuration.api_key.get("BearerToken") or "").partition(" ")
    header = f"{scheme.capitalize()} {token.strip()}" if token else ""
    return Access(server, header, tls, configuration.proxy or "")

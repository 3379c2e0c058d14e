"""The address and credentials of an API server.

The `kubernetes` package reads kubeconfig files, and supports exec plugins and OIDC tokens.
"""

from __future__ import annotations

import binascii
import contextlib
import logging
import os
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from pilot.kube.api_errors import ConfigurationError


class Access(NamedTuple):
    """Parameters of connections to an API server.

    `authorization` is the value of the Authorization header, or "" to send none. If `tls` is None, connections use
    plaintext.
    """

    server: str
    authorization: str = ""
    tls: TlsFiles | None = None
    proxy: str = ""


class TlsFiles(NamedTuple):
    """Files and options of TLS connections to an API server.

    `roots` defaults to the system's trust store. `server_name` is the name to verify if it differs from the address's
    host.
    """

    roots: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the TLS context. Raise ConfigurationError if a file is unusable."""
        try:
            context = ssl.create_default_context(cafile=self.roots)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"cannot use the certificates in the kubeconfig: {error}") from error
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


class Credentials(Protocol):
    """A source of access parameters. They are reloaded after `ttl` seconds, because tokens in files are rotated."""

    ttl: float

    async def load(self) -> Access: ...


class InCluster:
    """The service account of the Pod that this process runs in."""

    ttl = 60.0

    async def load(self) -> Access:
        """Return the access parameters. Raise ConfigurationError if the process does not run in a Pod."""
        from kubernetes.aio import config

        configuration = _new_configuration()
        try:
            config.load_incluster_config(configuration)
        except (config.ConfigException, OSError) as error:
            raise ConfigurationError(f"cannot use the service account of this Pod: {error}") from error
        return _access(configuration)


class KubeconfigFile:
    """A kubeconfig file, or several files separated by colons. If `context` is "", the current context is used."""

    ttl = 300.0

    def __init__(self, path: str, context: str = "") -> None:
        self._path, self._context = path, context

    async def load(self) -> Access:
        """Return the access parameters. Raise ConfigurationError if the file does not provide any."""
        from kubernetes.aio import config

        configuration = _new_configuration()
        path = os.path.expanduser(self._path)
        if not any(map(os.path.isfile, path.split(os.pathsep))):
            reason = "a folder, not a file" if os.path.isdir(path) else "no such file"
            raise ConfigurationError(f"kubeconfig {self._path}: {reason}; set --kubeconfig or KUBECONFIG to a file")
        contexts = [name for file in path.split(os.pathsep) if os.path.isfile(file) for name in _context_names(file)]
        if not self._context and len(contexts) > 0 and not any(map(_current_context, path.split(os.pathsep))):
            names = ", ".join(contexts)
            raise ConfigurationError(f"kubeconfig {self._path}: no current-context; use --context with one of: {names}")
        if self._context and self._context not in contexts:
            names = ", ".join(contexts) or "none"
            raise ConfigurationError(f"kubeconfig {self._path}: no context {self._context!r}; contexts are: {names}")
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


def _context_names(file: str) -> list[str]:
    """Return the contexts in a kubeconfig file. Raise ConfigurationError if it is not a kubeconfig."""
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
        raise ConfigurationError(f"kubeconfig {file}: not valid YAML{line}") from error
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
    return [context["name"] for context in contexts]


def _current_context(file: str) -> str:
    """Return the current context in a valid kubeconfig file, or "" if there is none."""
    import yaml

    if not os.path.isfile(file):
        return ""
    with open(file, encoding="utf-8") as text:
        return str((yaml.safe_load(text) or {}).get("current-context") or "")


def _reason(error: Exception) -> str:
    """Return why the `kubernetes` package cannot use a kubeconfig."""
    from kubernetes.aio import config

    if isinstance(error, ConfigurationError):
        return str(error)
    if isinstance(error, config.ConfigException):
        return str(error).removeprefix("Invalid kube-config file. ")
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
        raise ConfigurationError(f"kubeconfig: {server!r} is not a server URL")
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

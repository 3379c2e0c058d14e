"""How an API server is reached: its address, its certificate, and who we are to it.

What files of configuration say, plugins that are run for a token and tokens of OpenID among it, is left to the `kubernetes` package.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from pilot.kube.errors import ConfigurationError


class Access(NamedTuple):
    """One way to a server. `authorization` is the header of that name, "" for none; `tls` None is plain HTTP."""

    server: str
    authorization: str = ""
    tls: TlsFiles | None = None
    proxy: str = ""


class TlsFiles(NamedTuple):
    """Names of files: roots that the server's certificate must lead to (None: those of the system), and our own certificate.

    `name` is what the certificate must be for, where that is not the host of the address; `verify` is off for who wants any certificate.
    """

    roots: str | None = None
    certificate: str | None = None
    key: str | None = None
    name: str | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Returns the context of TLS. ConfigurationError where a file cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.roots)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"the certificates of a kubeconfig cannot be used: {error}") from error
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


class Credentials(Protocol):
    """Where access comes from. `seconds` is how long what it gave may be used before it is asked for again: tokens are renewed in files."""

    seconds: float

    async def load(self) -> Access: ...


class InCluster:
    """The service account of the pod that this process runs in."""

    seconds = 60.0

    async def load(self) -> Access:
        """Returns the access. ConfigurationError outside of a pod."""
        from kubernetes.aio import config

        found = _empty()
        try:
            config.load_incluster_config(found)
        except (config.ConfigException, OSError) as error:
            raise ConfigurationError(f"this pod's service account cannot be used: {error}") from error
        return _access(found)


class KubeconfigFile:
    """A kubeconfig, or several between colons. `context` "" is the current one."""

    seconds = 300.0

    def __init__(self, path: str, context: str = "") -> None:
        self._path, self._context = path, context

    async def load(self) -> Access:
        """Returns the access. ConfigurationError where the file does not give one."""
        from kubernetes.aio import config

        found = _empty()
        path = os.path.expanduser(self._path)
        if not any(map(os.path.isfile, path.split(os.pathsep))):
            raise ConfigurationError(f"kubeconfig {self._path}: there is no such file")
        try:
            await config.load_kube_config(path, self._context or None, client_configuration=found, persist_config=False)
        except Exception as error:  # the package raises what it meets: TypeError where a section is missing
            raise ConfigurationError(f"kubeconfig {self._path}: {error}") from error
        return _access(found)


class Kubeconfig:
    """A kubeconfig as plain data."""

    seconds = 300.0

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self._plain = plain

    async def load(self) -> Access:
        """Returns the access. ConfigurationError where the data does not give one."""
        from kubernetes.aio import config

        found = _empty()
        try:
            await config.load_kube_config_from_dict(dict(self._plain), client_configuration=found)
        except Exception as error:  # as above
            raise ConfigurationError(f"kubeconfig: {error}") from error
        return _access(found)


def _empty() -> Any:
    from kubernetes.aio import client

    return client.Configuration()


def _access(found: Any) -> Access:
    """Returns what the package has read."""
    server = (found.host or "").rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise ConfigurationError(f"kubeconfig: {server!r} is not the address of a server")
    tls = None
    if server.startswith("https://"):
        tls = TlsFiles(
            found.ssl_ca_cert,
            found.cert_file,
            found.key_file,
            getattr(found, "tls_server_name", None),
            found.verify_ssl,
        )
    kind, _, token = (found.api_key.get("BearerToken") or "").partition(" ")
    header = f"{kind.capitalize()} {token.strip()}" if token else ""
    return Access(server, header, tls, found.proxy or "")

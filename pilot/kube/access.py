"""Parameters of connections to an API server."""

from __future__ import annotations

import ssl
from typing import NamedTuple

from pilot.kube.api_errors import ConfigurationError
from pilot.lib.pem_files import PemError, PemFile, check_pair


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
                # OpenSSL would ask for the password of an encrypted key.
                check_pair(
                    _read("client-certificate", self.certificate), _read("client-key", self.key or self.certificate)
                )
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError, PemError) as error:
            raise ConfigurationError(f"cannot use the certificates in the kubeconfig: {error}") from error
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def _read(field: str, path: str) -> PemFile:
    with open(path, "rb") as file:
        return PemFile(f"{field} {path}", file.read())

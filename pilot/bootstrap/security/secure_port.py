"""The secure gRPC port."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from grpc import aio

from pilot.bootstrap.ports import listen_error
from pilot.bootstrap.security.port_certificate import PortCertificate
from pilot.lib.duration import Duration
from pilot.xds.authn.client_certificates import names_in_certificate
from pilot.xds.net.listen_address import Address
from pilot.xds.push.connection import Connection
from pilot.xds.server import drain
from pilot.xds.tls.front import TlsFront


class SecurePort:
    """A gRPC server with TLS. It does not listen if it has no certificate.

    `number` is the actual port number, even if the port in the address is 0. On `stop`, open streams have
    `drain_duration` to end.
    """

    def __init__(
        self,
        server: aio.Server,
        front: TlsFront,
        certificate: PortCertificate,
        trust_domain: Callable[[], str],
        address: Address,
        connections: Collection[Connection],
        drain_duration: Duration,
    ) -> None:
        self._server, self._front, self._certificate, self._trust_domain = server, front, certificate, trust_domain
        self._address, self._connections, self._drain_duration = address, connections, drain_duration
        self._domain = ""
        self.number = address.port

    async def start(self) -> None:
        """Listen. A client certificate must belong to the mesh's current trust domain and must not be revoked.

        Raise StartError if the address is unavailable.
        """
        if self._certificate.context is None:
            return
        self._server.add_insecure_port(self._front.inner)
        await self._server.start()
        self._domain = self._trust_domain()
        try:
            self.number = await self._front.listen(self._address, self._certificate.context, self._read_names)
        except OSError as error:
            await self._server.stop(None)
            raise listen_error(self._address, error) from error
        self._certificate.on_change.append(self._front.use_context)

    def _read_names(self, chain: Sequence[bytes]) -> tuple[str, ...]:
        self._certificate.revoked.check(chain)
        return names_in_certificate(chain[0], self._domain)

    async def stop(self) -> None:
        if self._certificate.context is None:
            return
        self._front.stop_accepting()
        await drain(self._server, self._connections, self._drain_duration.seconds)
        self._front.close()

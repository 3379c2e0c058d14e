"""The gRPC service IstioCertificateService.

The peer receives only an error code. The reason is logged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from ca.errors import SigningError
from pilot.lib.logging.log import scope
from pilot.lib.metrics.call_metrics import CallMetrics, go_name
from protos import ca_pb2

SERVICE, METHOD = "istio.v1.auth.IstioCertificateService", "CreateCertificate"
IMPERSONATED = "ImpersonatedIdentity"
CERT_SIGNER = "CertSigner"
LARGEST_REQUEST = 64 * 1024
"""Maximum size of a message in bytes. It contains a CSR and metadata, which usually have a few kilobytes."""
_log = scope("serverca")


class CallerRefused(Exception):
    """The caller is not authenticated, or not allowed to request a certificate. `args[0]` is for the log."""


class CallerPostponed(CallerRefused):
    """The caller cannot be authenticated or served now, because too many others wait. It may try again later."""


class SigningObserver(Protocol):
    """Receives the events that are counted in metrics."""

    def csr_received(self) -> None: ...
    def csr_unauthenticated(self) -> None: ...
    def csr_failed(self, code: str) -> None: ...
    def csr_signed(self) -> None: ...
    @property
    def calls(self) -> CallMetrics: ...


class CallerDisconnected(CallerRefused):
    """The caller has disconnected, so it is neither authenticated nor rejected."""


Sign = Callable[[bytes, Sequence[str], int, str], Awaitable[list[str]]]
"""Signs a CSR in PEM for identities and returns a certificate chain in PEM. Raises SigningError or CallerPostponed.

The last two arguments are a lifetime in seconds and a signer's name, or "" for the mesh's signer.
"""
Authenticate = Callable[[Any], Awaitable[Sequence[str]]]
"""Returns the verified identities of the caller in a gRPC context. There is at least one. Raises CallerRefused
otherwise."""
Impersonate = Callable[[Any, str], Awaitable[None]]
"""Raises CallerRefused unless the caller is a node proxy that may request a certificate for the identity."""


async def refuse_impersonation(_: Any, identity: str) -> None:
    """Raise CallerRefused for every identity."""
    raise CallerRefused(f"impersonation is disabled: {identity}")


class CertificateService:
    """Implements CreateCertificate on serialized messages."""

    def __init__(
        self,
        sign: Sign,
        authenticate: Authenticate,
        observer: SigningObserver,
        impersonate: Impersonate = refuse_impersonation,
    ) -> None:
        self._sign, self._authenticate, self._observer, self._impersonate = sign, authenticate, observer, impersonate

    def handlers(self) -> Any:
        """Return the handler for `grpc.aio.Server.add_generic_rpc_handlers`."""
        method = grpc.unary_unary_rpc_method_handler(self._create)
        return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})

    async def _create(self, raw: bytes, context: Any) -> bytes:
        with self._observer.calls.unary(SERVICE, METHOD) as codes:
            try:
                return await self._certificate(raw, context)
            except BaseException:
                if isinstance(status := context.code(), grpc.StatusCode):
                    codes.append(go_name(status.value[0]))
                raise

    async def _certificate(self, raw: bytes, context: Any) -> bytes:
        self._observer.csr_received()
        if len(raw) > LARGEST_REQUEST:  # callers wait for their authentication
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"the request has {len(raw)} bytes; at most {LARGEST_REQUEST} are allowed",
            )
        try:
            identities = await self._authenticate(context)
        except CallerRefused as error:
            await self._deny(context, "request authenticate failure", error)
        try:
            request = ca_pb2.IstioCertificateRequest.FromString(raw)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "malformed request")
        if impersonated := _text(request, IMPERSONATED):
            try:
                await self._impersonate(context, impersonated)
            except CallerRefused as error:
                await self._deny(context, "request impersonation authentication failure", error)
            identities = (impersonated,)
        try:
            chain = await self._sign(
                request.csr.encode(), identities, request.validity_duration, _text(request, CERT_SIGNER)
            )
        except CallerPostponed as error:
            self._observer.csr_failed("CA_NOT_READY")
            _log.warning("CSR of %s is not signed: %s", ", ".join(identities), error)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests are waiting")
        except SigningError as error:
            self._observer.csr_failed(error.code)
            _log.error("CSR signing error for %s: %s", ", ".join(identities), error)
            status = grpc.StatusCode.INVALID_ARGUMENT if error.is_callers_fault else grpc.StatusCode.INTERNAL
            await context.abort(status, f"CSR signing error ({error.code})")
        self._observer.csr_signed()
        answer: bytes = ca_pb2.IstioCertificateResponse(cert_chain=chain).SerializeToString()
        return answer

    async def _deny(self, context: Any, message: str, error: CallerRefused) -> None:
        if isinstance(error, CallerDisconnected):
            await context.abort(grpc.StatusCode.CANCELLED, "disconnected")
        self._observer.csr_unauthenticated()
        _log.warning("%s: %s", message, error)
        is_postponed = isinstance(error, CallerPostponed)
        await context.abort(
            grpc.StatusCode.RESOURCE_EXHAUSTED if is_postponed else grpc.StatusCode.UNAUTHENTICATED, message
        )


def _text(request: ca_pb2.IstioCertificateRequest, key: str) -> str:
    """Return a string in the request's metadata, or "" if there is none."""
    value = request.metadata.fields.get(key)
    return value.string_value if value is not None else ""

"""Debug pages for callers that are not on this machine: over HTTP and over xDS, by what they have proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import grpc

from pilot.debug.over_xds import ask
from pilot.debug.page import Refused
from pilot.debug.sources import Sources
from pilot.xds.identity import Authenticate, Caller, IdentityError
from pilot.xds.questions import AnsweredResources, Ask, QuestionError

_STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
}


def over_xds(sources: Sources) -> Ask:
    """Returns who answers debug pages over xDS."""

    async def answer(type_url: str, names: Sequence[str], identity: str) -> AnsweredResources:
        try:
            return AnsweredResources(*await ask(sources, type_url, names, (identity,) if identity else ()))
        except Refused as refused:
            raise QuestionError(_STATUS[refused.status], refused.text or _reason(identity)) from refused

    return answer


def _reason(identity: str) -> str:
    """Returns why somebody is shown nothing."""
    return (
        f'the debug info is not available for current identity: "{identity}"' if identity else "authentication required"
    )


class HttpIdentities:
    """Identifies callers over HTTP as on the port with TLS, by their bearer token."""

    def __init__(self, authenticate: Authenticate) -> None:
        self._authenticate = authenticate

    async def __call__(self, address: str, headers: Mapping[str, str]) -> Sequence[str]:
        """Returns the identities of a caller, none where it proves none. `headers` have names in lower case."""
        try:
            return await self._authenticate(Caller(address, headers))
        except IdentityError:
            return ()

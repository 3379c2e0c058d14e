"""Who may ask for configuration objects: they are the whole mesh's, and so for the control plane's own namespace alone."""

from __future__ import annotations

from collections.abc import Callable

import grpc

from pilot.lib.spiffe import parse_identity
from pilot.xds.questions import QuestionError

CheckObjectAccess = Callable[[str], None]
"""Takes the verified identity of who asks, "" for none. QuestionError where it may not have objects."""


def nobody_may(_: str) -> None:
    """Refuses everybody, for where it is not said who may."""
    raise QuestionError(grpc.StatusCode.UNAUTHENTICATED, "objects are for a verified identity of the control plane")


def anybody_may(_: str) -> None:
    """Lets everybody have objects."""


def only(namespace: Callable[[], str]) -> CheckObjectAccess:
    """Returns the check that lets identities of one namespace have objects; `namespace` says which one that is now."""

    def check(identity: str) -> None:
        parsed = parse_identity(identity) if identity else None
        if parsed is None:
            nobody_may(identity)
        elif parsed.namespace != namespace():
            raise QuestionError(
                grpc.StatusCode.PERMISSION_DENIED, "objects are for the control plane's namespace alone"
            )

    return check

"""Scripts of the state-of-the-world protocol."""

from __future__ import annotations

import pytest

from testing.clients.scripted_stream import normalize, play, sotw

SCRIPTS = {
    "the first request for a wildcard type is answered in full": """
        ~ cds a b
        > cds
        < cds a b
    """,
    "an acknowledgement is not answered": """
        ~ cds a
        > cds
        < cds a
        > cds @1
    """,
    "a wildcard type is sent whole when one resource changes": """
        ~ cds a b
        > cds
        < cds a b
        > cds @1
        ~ cds a=2
        < cds a b
    """,
    "a wildcard type is sent whole when one resource is removed": """
        ~ cds a b
        > cds
        < cds a b
        ~ cds a-
        < cds b
    """,
    "a wildcard type is sent even if it is empty": """
        ~ cds a
        > cds
        < cds a
        ~ cds a-
        < cds
    """,
    "an equal result is not sent": """
        ~ cds a
        > cds
        < cds a
        ~ cds a=1
    """,
    "changes during a slow write are sent once": """
        > cds
        ~ cds a
        < cds a
        ~ cds a=2
        < cds a
    """,
    "existing named resources are sent, in server order": """
        ~ rds x y z
        > rds z x
        < rds x z
    """,
    "a missing route is not in the response": """
        ~ rds x
        > rds x y
        < rds x
    """,
    "a missing route is sent when it appears": """
        ~ rds x
        > rds x y
        < rds x
        > rds x y @1
        ~ rds y
        < rds y
    """,
    "only routes that changed are sent": """
        ~ rds x y
        > rds x y
        < rds x y
        ~ rds y=2
        < rds y
    """,
    "a route without a subscription is not sent": """
        ~ rds x y
        > rds x
        < rds x
        ~ rds y=2
    """,
    "a removed route causes no response": """
        ~ rds x y
        > rds x y
        < rds x y
        ~ rds x-
    """,
    "a cluster without endpoints gets an empty assignment": """
        ~ eds a
        > eds a b
        < eds a b
    """,
    "a cluster that loses its endpoints gets an empty assignment": """
        ~ eds a b
        > eds a b
        < eds a b
        ~ eds a-
        < eds a
        ~ eds a
        < eds a
    """,
    "an acknowledgement that adds names is answered with them": """
        ~ rds x y z
        > rds x
        < rds x
        > rds x y z @1
        < rds y z
    """,
    "an acknowledgement that only drops names is not answered": """
        ~ rds x y
        > rds x y
        < rds x y
        > rds x @1
        ~ rds y=2
    """,
    "missing names are answered with an empty response": """
        ~ rds x y
        > rds x
        < rds x
        > rds x z @1
        < rds
    """,
    "a name that comes back is answered": """
        ~ rds x y
        > rds x y
        < rds x y
        > rds x @1
        > rds x y @1
        < rds y
    """,
    "changed names of a wildcard type are answered in full": """
        ~ cds a b
        > cds
        < cds a b
        > cds a @1
        < cds a b
    """,
    "an empty list of names ends the subscription to a named type": """
        ~ rds x
        > rds x
        < rds x
        > rds @1
        ~ rds x=2
    """,
    "a first request without names subscribes to no named resource": """
        ~ eds a
        > eds
        ~ eds a=2
    """,
    "after an unsubscription the nonce does not matter": """
        ~ rds x
        > rds x
        < rds x
        > rds @1
        > rds x @1
        < rds x
    """,
    "a request with a stale nonce is ignored": """
        ~ rds x y
        > rds x
        < rds x
        ~ rds x=2
        < rds x
        > rds x y @1
        > rds x y @2
        < rds y
    """,
    "a name dropped with a stale nonce is answered when it comes back": """
        ~ rds x y
        > rds x y
        < rds x y
        ~ rds x=2
        < rds x
        > rds x @1
        > rds x y @2
        < rds y
    """,
    "an unknown nonce is stale": """
        ~ rds x y
        > rds x
        < rds x
        > rds x y @0
    """,
    "a nonce of the previous connection is answered in full": """
        ~ cds a
        > cds @0
        < cds a
    """,
    "a request without a nonce starts again": """
        ~ rds x y
        > rds x
        < rds x
        > rds x y
        < rds x y
    """,
    "a NACK is not answered and its names are ignored": """
        ~ rds x y
        > rds x
        < rds x
        > rds x y @1 !3 no
        ~ rds y=2
    """,
    "after a NACK the next change is sent": """
        ~ cds a
        > cds
        < cds a
        > cds @1 !3 no
        ~ cds a=2
        < cds a
        > cds @2
    """,
    "clusters before endpoints before listeners before routes, in any order of requests": """
        > rds x
        > lds
        > eds a
        > cds
        ~ rds x
        < rds x
        ~ lds l
        < lds l
        ~ cds a
        < cds a
        ~ eds a
        < eds a
        ! push
        < cds a
        < eds a
        < lds l
        < rds x
    """,
    "a type without a state is answered once it has one": """
        > lds
        ~ lds l
        < lds l
    """,
    "endpoints of a changed cluster are sent again after its acknowledgement": """
        ~ cds a b
        ~ eds a b
        > cds
        < cds a b
        > eds a b
        < eds a b
        ~ cds a=2
        < cds a b
        > cds @2
        ! release
        < eds a
    """,
    "released endpoints are sent with newly subscribed ones": """
        ~ cds a
        ~ eds a b
        > cds
        < cds a
        > eds a
        < eds a
        ~ cds a=2 b
        < cds a b
        > cds @2
        > eds a b @1
        < eds a b
        ! release
    """,
    "endpoints missing from a new plan are not reported, because their clusters go too": """
        ~ eds a b
        > eds a b
        < eds a b
        ! replan eds b
    """,
    "after a first response with clusters, the next acknowledgement of endpoints is answered in full": """
        ~ cds a b
        ~ eds a b
        > eds a b
        < eds a b
        > cds
        < cds a b
        > eds a b @1
        < eds a b
        > eds a b @2
    """,
    "a type has the resources of both groups": """
        ~ cds one:a two:b
        > cds
        < cds a b
        ~ cds two:b=2
        < cds a b
    """,
    "the first group wins": """
        ~ cds one:a=1 two:a=2 two:b
        > cds
        < cds a b
        ~ cds one:a-
        < cds a b
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_sotw_script(script: str) -> None:
    assert play(sotw(), script) == normalize(script)

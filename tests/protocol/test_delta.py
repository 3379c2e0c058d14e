"""Scripts of the delta protocol."""

from __future__ import annotations

import pytest

from testing.clients.scripted_stream import delta, normalize, play

SCRIPTS = {
    "the first request without names is a wildcard": """
        ~ cds a b
        > cds
        < cds a b
    """,
    "an asterisk is a wildcard": """
        ~ cds a b
        > cds *
        < cds a b
    """,
    "an asterisk both ways is a subscription to nothing": """
        ~ cds a b
        > cds * -*
        < cds
        ~ cds a=2
        > cds +a
        < cds a
        ~ cds b=2
    """,
    "a request with names is no wildcard": """
        ~ cds a b
        > cds a
        < cds a
        ~ cds b=2
        ~ cds a=2
        < cds a
    """,
    "a named type without names is a subscription to nothing": """
        ~ rds x
        > rds
        < rds
        ~ rds x=2
    """,
    "an asterisk subscribes to all resources of a named type": """
        ~ rds x y
        > rds *
        < rds x y
        ~ rds y=2
        < rds y
    """,
    "the nonce of a first request does not matter": """
        ~ cds a
        > cds @0
        < cds a
    """,
    "only what changed is sent": """
        ~ cds a b c
        > cds
        < cds a b c
        > cds @1
        ~ cds b=2 c-
        < cds b -c
    """,
    "an equal result is not sent": """
        ~ cds a
        > cds
        < cds a
        ~ cds a=1
    """,
    "changes during a slow write are sent once, and reverted ones not at all": """
        ~ cds a b
        > cds
        < cds a b
        ~ cds a=2
        < cds a
        ~ cds a=3 b-
        < cds a -b
    """,
    "a first request is answered even if there are no resources": """
        ~ cds a
        ~ cds a-
        > cds
        < cds
    """,
    "missing names are reported as removed": """
        ~ rds x
        > rds x y z
        < rds x -y -z
    """,
    "a missing name is sent when it appears": """
        ~ rds x
        > rds x y
        < rds x -y
        ~ rds y
        < rds y
    """,
    "only subscribed names are sent": """
        ~ rds x y
        > rds x
        < rds x
        ~ rds y=2
        ~ rds y-
        ~ rds x-
        < rds -x
    """,
    "removed endpoints are sent as an empty assignment": """
        ~ eds a
        > eds a b
        < eds a b
        ~ eds a-
        < eds a
    """,
    "endpoints missing from a new plan are not reported, because their clusters go too": """
        ~ eds a b
        > eds a b
        < eds a b
        ! replan eds b
    """,
    "extensions are never removed": """
        ~ ecds e
        > ecds e f
        < ecds e
        ~ ecds e-
    """,
    "an acknowledgement is not answered": """
        ~ rds x
        > rds x
        < rds x
        > rds @1
    """,
    "only the new name is answered, without a nonce or with the current one": """
        ~ rds x y z
        > rds x
        < rds x
        > rds +y
        < rds y
        > rds +z @2
        < rds z
    """,
    "a repeated subscription is answered again": """
        ~ rds x
        > rds x
        < rds x
        > rds +x
        < rds x
    """,
    "an unsubscription is not answered": """
        ~ rds x y
        > rds x y
        < rds x y
        > rds -y
        ~ rds y=2
        ~ rds x=2
        < rds x
    """,
    "a name subscribed and unsubscribed in one request is not subscribed": """
        ~ rds x y
        > rds x
        < rds x
        > rds +y -y
        ~ rds y=2
    """,
    "a name unsubscribed before its response is not answered": """
        > rds x
        > rds -x
        ~ rds x
        < rds
    """,
    "a stale nonce acknowledges nothing, but its names are subscribed": """
        ~ rds x y
        > rds x
        < rds x
        ~ rds x=2
        < rds x
        > rds +y @1
        < rds y
    """,
    "a NACK is not answered and its names are ignored": """
        ~ rds x y
        > rds x
        < rds x
        > rds +y @1 !3 no
        ~ rds x=2
        < rds x
    """,
    "names stay subscribed after the wildcard ends": """
        ~ cds a b
        > cds * a
        < cds a b
        > cds -*
        ~ cds b=2
        ~ cds a=2
        < cds a
    """,
    "a later wildcard is answered in full": """
        ~ cds a b
        > cds a
        < cds a
        > cds +*
        < cds a b
        ~ cds b=2
        < cds b
    """,
    "a name subscribed in addition to a wildcard is answered": """
        ~ cds a b
        > cds
        < cds a b
        > cds +a
        < cds a
        > cds +c
        < cds -c
    """,
    "a name subscribed after a change is answered once": """
        ~ cds a b
        > cds
        < cds a b
        ~ cds a=2
        < cds a
        > cds +b
        < cds b
    """,
    "a reconnecting proxy gets removed resources": """
        ~ cds a b
        > cds =a =z
        < cds a b -z
    """,
    "a reconnecting proxy gets removed names": """
        ~ rds x
        > rds x y =x =y
        < rds x -y
    """,
    "initial resource versions are subscribed": """
        ~ rds x y
        > rds x =y
        < rds x y
        ~ rds y=2
        < rds y
    """,
    "a response with clusters is followed by all endpoints": """
        ~ cds a b
        ~ eds a b
        > eds a b
        < eds a b
        > cds
        < cds a b
        < eds a b
    """,
    "a response with single clusters is followed by their endpoints": """
        ~ cds a b
        ~ eds a
        > cds a
        < cds a
        > eds a
        < eds a
        > cds +b
        < cds b
        < eds a
    """,
    "endpoints of a changed cluster are sent again after its acknowledgement": """
        ~ cds a b
        ~ eds a b
        > cds
        < cds a b
        > eds a b
        < eds a b
        ~ cds a=2
        < cds a
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
        > eds +b
        < eds a b
        ! release
    """,
    "a cluster without EDS releases no endpoints": """
        ~ cds s
        ~ eds a
        > cds
        < cds s
        > eds a
        < eds a
        ~ cds s=2
        < cds s
        > cds @2
        ! release
    """,
    "a push is in warming order": """
        ~ rds x
        ~ lds l
        ~ eds a
        ~ cds a
        > rds x
        < rds x
        > lds
        < lds l
        > eds a
        < eds a
        > cds
        < cds a
        < eds a
        ! push
        < cds a
        < eds a
        < lds l
        < rds x
    """,
    "a forced push sends everything again": """
        ~ cds a b
        > cds
        < cds a b
        ! push
        < cds a b
    """,
    "another plan with the same content is no change": """
        ~ cds one:a two:b
        > cds
        < cds a b
        ! replan cds
        ~ cds one:a=2
        < cds a
    """,
    "a name that moves to another group is not removed": """
        ~ cds one:a one:b two:c
        > cds
        < cds a b c
        ~ cds one:b- two:b=2
        < cds b
    """,
    "the first group wins, and the second takes over": """
        ~ cds one:a=1 two:a=2 two:b
        > cds
        < cds a b
        ~ cds two:a=3
        ~ cds one:a-
        < cds a
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_delta_script(script: str) -> None:
    assert play(delta(), script) == normalize(script)

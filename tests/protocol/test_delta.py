"""The delta variant, line by line."""

from __future__ import annotations

import pytest

from testing.clients.scripted_stream import delta, play, written

SCRIPTS = {
    "the first request without names is a wildcard": """
        ~ cds a b
        > cds
        < cds a b
    """,
    "so is an asterisk": """
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
    "names make it no wildcard": """
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
    "an asterisk of a named type is all of it": """
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
    "changes that come while a proxy is slow are sent once, those that cancel out not at all": """
        ~ cds a b
        > cds
        < cds a b
        ~ cds a=2
        < cds a
        ~ cds a=3 b-
        < cds a -b
    """,
    "a first request is answered even with nothing": """
        ~ cds a
        ~ cds a-
        > cds
        < cds
    """,
    "names that are not there are said to be gone": """
        ~ rds x
        > rds x y z
        < rds x -y -z
    """,
    "and come when they are there": """
        ~ rds x
        > rds x y
        < rds x -y
        ~ rds y
        < rds y
    """,
    "of what changes, only what was asked for": """
        ~ rds x y
        > rds x
        < rds x
        ~ rds y=2
        ~ rds y-
        ~ rds x-
        < rds -x
    """,
    "endpoints are never removed: none stand in": """
        ~ eds a
        > eds a b
        < eds a b
        ~ eds a-
        < eds a
    """,
    "endpoints that another plan does not have are not told: their clusters go too": """
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
    "a new name is answered alone, without a nonce or with the right one": """
        ~ rds x y z
        > rds x
        < rds x
        > rds +y
        < rds y
        > rds +z @2
        < rds z
    """,
    "a name that is subscribed to again is answered again": """
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
    "names both ways in one request are not subscribed to": """
        ~ rds x y
        > rds x
        < rds x
        > rds +y -y
        ~ rds y=2
    """,
    "an unsubscription that waits for its answer is not answered any more": """
        > rds x
        > rds -x
        ~ rds x
        < rds
    """,
    "a stale nonce acknowledges nothing, but its names count": """
        ~ rds x y
        > rds x
        < rds x
        ~ rds x=2
        < rds x
        > rds +y @1
        < rds y
    """,
    "a NACK is not answered and its names do not count": """
        ~ rds x y
        > rds x
        < rds x
        > rds +y @1 !3 no
        ~ rds x=2
        < rds x
    """,
    "a wildcard that ends keeps the names": """
        ~ cds a b
        > cds * a
        < cds a b
        > cds -*
        ~ cds b=2
        ~ cds a=2
        < cds a
    """,
    "a wildcard that begins later is answered in full": """
        ~ cds a b
        > cds a
        < cds a
        > cds +*
        < cds a b
        ~ cds b=2
        < cds b
    """,
    "a name asked for beside a wildcard is answered": """
        ~ cds a b
        > cds
        < cds a b
        > cds +a
        < cds a
        > cds +c
        < cds -c
    """,
    "with what changed meanwhile": """
        ~ cds a b
        > cds
        < cds a b
        ~ cds a=2
        < cds a
        > cds +b
        < cds b
    """,
    "a reconnecting proxy hears what is gone": """
        ~ cds a b
        > cds =a =z
        < cds a b -z
    """,
    "also of names": """
        ~ rds x
        > rds x y =x =y
        < rds x -y
    """,
    "what it has counts as subscribed": """
        ~ rds x y
        > rds x =y
        < rds x y
        ~ rds y=2
        < rds y
    """,
    "clusters that are answered are followed by all endpoints": """
        ~ cds a b
        ~ eds a b
        > eds a b
        < eds a b
        > cds
        < cds a b
        < eds a b
    """,
    "also those that are asked for one by one": """
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
    "endpoints of a changed cluster are sent again when it was acknowledged": """
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
    "and go with those that are asked for then": """
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
    "a cluster that needs no endpoints of its own releases none": """
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
    "in warming order": """
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
    "everything again hears of what is gone too": """
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
    "a name that moves from one group to another is not gone": """
        ~ cds one:a one:b two:c
        > cds
        < cds a b c
        ~ cds one:b- two:b=2
        < cds b
    """,
    "the first of two groups has a name, and the second takes over": """
        ~ cds one:a=1 two:a=2 two:b
        > cds
        < cds a b
        ~ cds two:a=3
        ~ cds one:a-
        < cds a
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_script(script: str) -> None:
    assert play(delta(), script) == written(script)

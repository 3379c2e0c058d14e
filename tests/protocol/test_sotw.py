"""The state-of-the-world variant, line by line."""

from __future__ import annotations

import pytest

from testing.clients.scripted_stream import play, sotw, written

SCRIPTS = {
    "the first request of a wildcard type is answered with all there is": """
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
    "and when one goes": """
        ~ cds a b
        > cds
        < cds a b
        ~ cds a-
        < cds b
    """,
    "even when nothing is left": """
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
    "changes that come while a proxy is slow are sent once": """
        > cds
        ~ cds a
        < cds a
        ~ cds a=2
        < cds a
    """,
    "named resources: those that are there, in the order in which they are there": """
        ~ rds x y z
        > rds z x
        < rds x z
    """,
    "a route that is not there is not in the answer": """
        ~ rds x
        > rds x y
        < rds x
    """,
    "and comes when it is there": """
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
    "a route that nobody asked for is not sent": """
        ~ rds x y
        > rds x
        < rds x
        ~ rds y=2
    """,
    "a route that goes is no response": """
        ~ rds x y
        > rds x y
        < rds x y
        ~ rds x-
    """,
    "no endpoints stand in for a cluster that has none": """
        ~ eds a
        > eds a b
        < eds a b
    """,
    "and for one that lost them": """
        ~ eds a b
        > eds a b
        < eds a b
        ~ eds a-
        < eds a
        ~ eds a
        < eds a
    """,
    "an acknowledgement that adds names is answered with these": """
        ~ rds x y z
        > rds x
        < rds x
        > rds x y z @1
        < rds y z
    """,
    "one that only drops names is not answered": """
        ~ rds x y
        > rds x y
        < rds x y
        > rds x @1
        ~ rds y=2
    """,
    "names that are not there are answered with nothing": """
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
    "a change of the names of a wildcard type is answered whole": """
        ~ cds a b
        > cds
        < cds a b
        > cds a @1
        < cds a b
    """,
    "no names of a named type: the subscription ends": """
        ~ rds x
        > rds x
        < rds x
        > rds @1
        ~ rds x=2
    """,
    "no names in the first request: there is none": """
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
    "a stale nonce is ignored, with its names": """
        ~ rds x y
        > rds x
        < rds x
        ~ rds x=2
        < rds x
        > rds x y @1
        > rds x y @2
        < rds y
    """,
    "but a name that was dropped there is answered when it comes back": """
        ~ rds x y
        > rds x y
        < rds x y
        ~ rds x=2
        < rds x
        > rds x @1
        > rds x y @2
        < rds y
    """,
    "a nonce that was never sent is as stale": """
        ~ rds x y
        > rds x
        < rds x
        > rds x y @0
    """,
    "a reconnecting proxy sends a nonce of before: answered in full": """
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
    "a NACK is not answered and its names do not count": """
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
    "clusters before endpoints before listeners before routes, whatever was asked first": """
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
    "a type without a view is answered when there is one": """
        > lds
        ~ lds l
        < lds l
    """,
    "endpoints of a changed cluster are sent again when it was acknowledged": """
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
        > eds a b @1
        < eds a b
        ! release
    """,
    "endpoints that another plan does not have are not told: their clusters go too": """
        ~ eds a b
        > eds a b
        < eds a b
        ! replan eds b
    """,
    "clusters sent on a first request: the next acknowledgement of endpoints is answered in full": """
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
    "two groups make one type": """
        ~ cds one:a two:b
        > cds
        < cds a b
        ~ cds two:b=2
        < cds a b
    """,
    "the first of two groups has a name": """
        ~ cds one:a=1 two:a=2 two:b
        > cds
        < cds a b
        ~ cds one:a-
        < cds a b
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_script(script: str) -> None:
    assert play(sotw(), script) == written(script)

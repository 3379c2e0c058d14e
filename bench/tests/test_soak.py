"""The verdict of bench/soak.py."""

from __future__ import annotations

from bench.soak import Round, verdict


def test_a_broken_promise_is_reported() -> None:
    def one(minute: float, wrong: list[str], nodes: int = 100, megabytes: float = 100.0, failures: int = 0) -> Round:
        return Round(minute, 40, 2, wrong, nodes, failures, megabytes, 1)

    assert verdict([one(1, []), one(11, [], megabytes=200), one(20, [], megabytes=219)], 100, 10) == []
    assert verdict([one(11, []), one(20, [], megabytes=111)], 100, 10) == ["memory grew from 100 to 111 MB"]
    assert verdict([one(minute, [], megabytes=140 if minute == 20 else 100) for minute in range(11, 60)], 100, 10) == []
    grown = [one(minute, [], megabytes=100 + minute) for minute in range(11, 60)]
    assert verdict(grown, 100, 10) == ["memory grew from 116 to 154 MB"]
    assert verdict([one(1, []), one(2, [], nodes=101)], 100, 10) == ["round 2: 101 nodes in the graph, 100 at first"]
    assert verdict([one(1, ["after edits: x"])], 100, 10) == ["round 1: after edits: x"]
    expected = ["2 failures of derivations and streams: the log says which"]
    assert verdict([one(1, []), one(2, [], failures=2)], 100, 10) == expected

"""The verdict of bench/soak.py."""

from __future__ import annotations

from bench.soak import Round, verdict


def test_unmet_requirements_are_reported() -> None:
    def make_round(
        minute: float, differences: list[str], nodes: int = 100, megabytes: float = 100.0, failures: int = 0
    ) -> Round:
        return Round(minute, 40, 2, differences, nodes, failures, megabytes, 1)

    assert (
        verdict([make_round(1, []), make_round(11, [], megabytes=200), make_round(20, [], megabytes=219)], 100, 10)
        == []
    )
    assert verdict([make_round(11, []), make_round(20, [], megabytes=111)], 100, 10) == [
        "memory grew from 100 to 111 MB"
    ]
    assert (
        verdict([make_round(minute, [], megabytes=140 if minute == 20 else 100) for minute in range(11, 60)], 100, 10)
        == []
    )
    grown = [make_round(minute, [], megabytes=100 + minute) for minute in range(11, 60)]
    assert verdict(grown, 100, 10) == ["memory grew from 116 to 154 MB"]
    assert verdict([make_round(1, []), make_round(2, [], nodes=101)], 100, 10) == [
        "round 2: 101 nodes in the graph, 100 at the start"
    ]
    assert verdict([make_round(1, ["after edits: x"])], 100, 10) == ["round 1: after edits: x"]
    expected = ["2 failures of derivations and streams, see the log"]
    assert verdict([make_round(1, []), make_round(2, [], failures=2)], 100, 10) == expected

"""Logs in Istio's format."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from pilot.lib.logging import log
from pilot.lib.logging import repeats as log_repeats


def lines(path: pathlib.Path) -> list[str]:
    for handler in log.scope("default").handlers:
        handler.flush()
    return path.read_text().splitlines()


def test_text_format(tmp_path: pathlib.Path) -> None:
    log.configure("default:info", False, [str(tmp_path / "log")])
    log.scope("default").info("started on %d", 1)
    log.scope("ads").warning("slow")
    log.scope("ads").debug("not shown")
    first, second = lines(tmp_path / "log")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\tinfo\tstarted on 1", first)
    assert second.split("\t")[1:] == ["warn", "ads", "slow"]


def test_fields_follow_the_message_and_are_escaped(tmp_path: pathlib.Path) -> None:
    log.configure("default:info", False, [str(tmp_path / "log")])
    log.scope("ads").info("pushed", extra=log.fields(event=3, what="a\nb\tc"))
    (line,) = lines(tmp_path / "log")
    assert line.split("\t")[1:4] == ["info", "ads", "pushed"]
    assert line.split("\t")[4] == "event=3"
    assert line.split("\t")[5].startswith("what=a\\nb")


def test_json_fields_keep_their_type(tmp_path: pathlib.Path) -> None:
    log.configure("default:info", True, [str(tmp_path / "log")])
    log.scope("ads").info(
        "pushed", extra=log.fields(event=3, forced=True, msg="another", name="x" * 5000, path=pathlib.Path("/a"))
    )
    record = json.loads(lines(tmp_path / "log")[0])
    assert (record["event"], record["forced"], record["path"]) == (3, True, "/a")
    assert record["msg"] == "pushed"
    assert len(record["name"]) < 1100


def test_json_format(tmp_path: pathlib.Path) -> None:
    log.configure("default:debug", True, [str(tmp_path / "log")])
    log.scope("ads").error('bad "quote"')
    record = json.loads(lines(tmp_path / "log")[0])
    assert (record["level"], record["scope"], record["msg"]) == ("error", "ads", 'bad "quote"')


def test_traceback_follows_its_line(tmp_path: pathlib.Path) -> None:
    log.configure("info", False, [str(tmp_path / "log")])
    try:
        raise ZeroDivisionError("reason")
    except ZeroDivisionError:
        log.scope("ads").exception("failed")
    assert lines(tmp_path / "log")[-1] == "  ZeroDivisionError: reason"


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ("default:info", ["ads info", "config info"]),
        ("default:info,ads:debug", ["ads debug", "ads info", "config info"]),
        ("ads:none", ["config info"]),
        ("default:none,ads:info", ["ads info"]),
        ("ads:none,all:debug", ["ads debug", "ads info", "config debug", "config info"]),
        ("warn", []),
    ],
)
def test_levels_by_scope(levels: str, expected: list[str], tmp_path: pathlib.Path) -> None:
    log.configure(levels, False, [str(tmp_path / "log")])
    for name in ("ads", "config"):
        log.scope(name).debug("x")
        log.scope(name).info("x")
    assert [" ".join(line.split("\t")[2:0:-1]) for line in lines(tmp_path / "log")] == expected


@pytest.mark.parametrize(
    ("levels", "target"), [("default:loud", "stdout"), ("loud", "stdout"), ("info", "/nowhere/at/all")]
)
def test_invalid_configuration(levels: str, target: str) -> None:
    with pytest.raises(ValueError, match=r"log"):
        log.configure(levels, False, [target])


def test_long_values_and_messages_are_cut(tmp_path: pathlib.Path) -> None:
    log.configure("default:info", False, [str(tmp_path / "log")])
    scope = log.scope("default")
    scope.info("%s", "a" * 1000)
    scope.info("%s", "a" * 1001)
    scope.info("b" * 8000)
    scope.info("b" * 8001)
    scope.info("x", extra=log.fields(value="c" * 1001))
    assert [line.split("\t", 2)[2] for line in lines(tmp_path / "log")] == [
        "a" * 1000,
        "a" * 1000 + "… (1 more characters)",
        "b" * 8000,
        "b" * 8000 + "… (1 more characters)",
        "x\tvalue=" + "c" * 1000 + "… (1 more characters)",
    ]


def test_repeated_lines_are_suppressed_for_every_target(tmp_path: pathlib.Path) -> None:
    log.configure("default:info", False, [str(tmp_path / name) for name in ("one", "two")])
    for _ in range(log_repeats.MAX_REPEATS + 3):
        log.scope("ads").info("the same")
    assert [len(lines(tmp_path / name)) for name in ("one", "two")] == [log_repeats.MAX_REPEATS] * 2


def test_logs_do_not_propagate(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    log.configure("default:info", False, [str(tmp_path / "log")])
    log.scope("ads").info("here")
    assert log.scope("default").propagate is False
    assert len(lines(tmp_path / "log")) == 1

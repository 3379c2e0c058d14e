"""Flags and environment → settings."""
from __future__ import annotations

import dataclasses

import pytest

from pilot.lib.duration import Duration
from pilot.lib.flags import FlagError, scan
from pilot.settings import Settings, document, load


def test_defaults() -> None:
    loaded = load([], {})
    assert loaded.settings == Settings()
    assert loaded.warnings == []
    assert loaded.flags["grpcAddr"] == ":15010"
    assert loaded.flags["shutdownDuration"] == "10s"
    assert list(loaded.flags) == sorted(loaded.flags)


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--grpcAddr", ":1"], "grpc_address", ":1"),
        (["--grpcAddr=:1"], "grpc_address", ":1"),
        (["--grpcAddr="], "grpc_address", ""),
        (["--grpcAddr", ":1", "--grpcAddr", ":2"], "grpc_address", ":2"),
        (["-n", "mesh"], "namespace", "mesh"),
        (["-nmesh"], "namespace", "mesh"),
        (["-n=mesh"], "namespace", "mesh"),
        (["--log_as_json"], "log_as_json", True),
        (["--log_as_json=false"], "log_as_json", False),
        (["--log_as_json=T"], "log_as_json", True),
        (["--shutdownDuration", "1m30s"], "shutdown_duration", Duration(90_000_000_000)),
        (["--log_target", "stdout", "--log_target", "a,b"], "log_targets", ("stdout", "a", "b")),
        (["--configDir", "-odd-"], "config_dir", "-odd-"),
        (["--unknown", "value", "--domain", "d"], "domain", "d"),
        (["--unknown=value", "--domain", "d"], "domain", "d"),
        (["--unknown", "--domain", "d"], "domain", "d"),
        (["-x", "1", "--domain", "d"], "domain", "d"),
        (["--domain", "d", "--"], "domain", "d"),
    ],
)
def test_flags(argv: list[str], field: str, value: object) -> None:
    assert getattr(load(argv, {}).settings, field) == value


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--grpcAddr"], "flag needs an argument: --grpcAddr"),
        (["--log_as_json=maybe"], "invalid argument for --log_as_json"),
        (["--log_as_json", "false"], "unexpected argument 'false'"),
        (["--shutdownDuration", "soon"], "invalid argument for --shutdownDuration"),
        (["--keepaliveMaxServerConnectionAge=30"], "invalid argument for --keepaliveMaxServerConnectionAge"),
        (["serve"], "unexpected argument 'serve'"),
        (["--", "--domain"], "unexpected argument '--domain'"),
    ],
)
def test_flags_that_make_no_sense(argv: list[str], text: str) -> None:
    with pytest.raises(FlagError, match=text):
        load(argv, {})


def test_unknown_flags_are_accepted_and_told() -> None:
    loaded = load(["--ctrlz_port", "0", "--profile=false", "-v"], {})
    assert [w.split()[1] for w in loaded.warnings] == ["--ctrlz_port", "--profile", "--v"]


@pytest.mark.parametrize(
    ("environ", "field", "value"),
    [
        ({"POD_NAMESPACE": "mesh"}, "namespace", "mesh"),
        ({"PILOT_DEBOUNCE_AFTER": "0"}, "debounce_after", Duration(0)),
        ({"PILOT_HTTP10": "1"}, "http10", True),
        ({"ISTIO_GPRC_MAXSTREAMS": "10"}, "max_streams", 10),
        ({"PILOT_MAX_REQUESTS_PER_SECOND": "2.5"}, "stream_rate", 2.5),
        ({"POD_NAMESPACE": ""}, "namespace", "istio-system"),
    ],
)
def test_environment(environ: dict[str, str], field: str, value: object) -> None:
    loaded = load([], environ)
    assert getattr(loaded.settings, field) == value
    assert not loaded.warnings


@pytest.mark.parametrize(
    "environ", [{"PILOT_DEBOUNCE_AFTER": "soon"}, {"PILOT_HTTP10": "yes"}, {"ISTIO_GPRC_MAXSTREAMS": "1_0"}, {"PILOT_MAX_REQUESTS_PER_SECOND": "inf"}]
)
def test_environment_that_makes_no_sense_is_told_and_left(environ: dict[str, str]) -> None:
    loaded = load([], environ)
    assert loaded.settings == Settings()
    assert loaded.warnings[0].startswith(f"environment variable {next(iter(environ))} is ignored")


def test_a_flag_wins_over_its_variable() -> None:
    assert load(["--namespace", "flag"], {"POD_NAMESPACE": "variable"}).settings.namespace == "flag"


def test_every_setting_is_documented_and_can_be_set() -> None:
    text = document()
    flags, variables = set(), set()
    for field in dataclasses.fields(Settings):
        flag, variable = field.metadata["flag"], field.metadata["env"]
        assert flag or variable, field.name
        assert field.metadata["about"].endswith("."), field.name
        assert field.metadata["about"] in text
        assert flag not in flags, flag
        assert variable not in variables, variable
        flags.add(flag or field.name)
        variables.add(variable or field.name)


def test_scan_tells_apart() -> None:
    assert scan(["a", "--known", "1", "b", "--other", "2"], {"known"}, set(), {}) == ({"known": ["1"]}, ["other"], ["a", "b"])

"""Key sets and gateway host names, by the settings."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from pilot.bootstrap import fetchers
from pilot.bootstrap.fetchers import make_key_sets
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.settings.parse import load


def test_key_set_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    calls: dict[str, tuple[Any, ...]] = {}

    def recorder(name: str) -> Any:
        def make(*args: Any) -> str:
            calls[name] = args
            return name

        return make

    for name in ("AddressRules", "make_tls", "JwksClient", "KeyStore", "KeySets"):
        monkeypatch.setattr(fetchers, name, recorder(name))
    environ = {
        "PILOT_ALLOWED_CIDRS_IN_JWKS_URIS": "10.0.0.0/8",
        "BLOCKED_CIDRS_IN_JWKS_URIS": "1.0.0.0/8",
        "PILOT_JWKS_EXTRA_ROOTS": "/roots",
        "JWKS_RESOLVER_INSECURE_SKIP_VERIFY": "true",
        "PILOT_JWKS_MAX_BYTES": "7",
        "PILOT_JWT_PUB_KEY_REFRESH_INTERVAL": "5m",
        "PILOT_STATE_DIR": "/state",
    }
    db, batch, problems, metrics = (object() for _ in range(4))
    args: Any = (db, batch, problems, metrics)
    key_sets: Any = make_key_sets(load([], environ).settings, *args)
    assert key_sets == "KeySets"
    assert calls == {
        "AddressRules": (("10.0.0.0/8",), ("1.0.0.0/8",)),
        "make_tls": ("/roots", True),
        "JwksClient": ("AddressRules", "make_tls", 7),
        "KeyStore": ("/state",),
        "KeySets": (db, batch, "JwksClient", "KeyStore", problems, metrics, parse_duration("5m"), 7),
    }


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        (
            "BLOCKED_CIDRS_IN_JWKS_URIS",
            "nonsense",
            "^PILOT_ALLOWED_CIDRS_IN_JWKS_URIS or BLOCKED_CIDRS_IN_JWKS_URIS: .*nonsense",
        ),
        ("PILOT_JWKS_EXTRA_ROOTS", "FILE", "^cannot read .*roots.pem: "),
    ],
)
def test_invalid_key_set_settings_abort_the_start(
    tmp_path: pathlib.Path, variable: str, text: str, message: str
) -> None:
    (tmp_path / "roots.pem").write_text("nonsense")
    environ = {variable: text.replace("FILE", str(tmp_path / "roots.pem"))}
    args: Any = (object(), object(), object(), Metrics())
    with pytest.raises(StartError, match=message):
        make_key_sets(load([], environ).settings, *args)


def test_gateway_host_names_are_resolved_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetchers, "read_name_servers", lambda: ["10.0.0.53"])
    for name in ("NameServers", "GatewayNames"):
        monkeypatch.setattr(fetchers, name, lambda *values: values)
    args: Any = (object(), object(), ProblemStore())
    names: Any = fetchers.make_gateway_names(load([], {}).settings, *args)
    assert names == (*args[:2], (["10.0.0.53"], 5.0), args[2])
    assert fetchers.make_gateway_names(load([], {"RESOLVE_HOSTNAME_GATEWAYS": "false"}).settings, *args) is None

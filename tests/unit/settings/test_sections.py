"""Sections of the settings: documented defaults, and flags and variables that set each field."""

from __future__ import annotations

import dataclasses
import pathlib
from operator import attrgetter
from typing import Any

import pytest

from pilot.lib.duration import Duration
from pilot.lib.flags import FlagError
from pilot.settings import Settings
from pilot.settings.ambient import AmbientSettings
from pilot.settings.declaration import FOREVER, declared, section, setting
from pilot.settings.document import main, sections
from pilot.settings.kubernetes import KubernetesSettings
from pilot.settings.mesh import MeshSettings
from pilot.settings.parse import load, load_sections, show
from pilot.settings.process import ProcessSettings
from pilot.settings.security import AuthoritySettings
from pilot.settings.usage import flag_sections
from pilot.settings.webhook import WebhookSettings
from testing.rows import Rows

TABLES = (
    (pathlib.Path(__file__).resolve().parents[3] / "docs" / "settings.md")
    .read_text(encoding="utf-8")
    .split("\n## ")[1:]
)
DECLARED = list(declared(Settings()))
AMBIENT = {"PILOT_ENABLE_AMBIENT": "true"}  # without it, variables of the ambient mesh cause a warning


def documented(title: str) -> list[tuple[str, str, str]]:
    """Return the flag, variable and default of each row of a table in docs/settings.md."""
    [table] = [table for table in TABLES if table.startswith(f"{title}\n")]
    rows = [row.split(" | ", 3) for row in table.split("|---|---|---|---|\n")[1].splitlines()]
    return [
        (flag.removeprefix("|").strip().replace("`", ""), variable.strip("` "), default.strip("` "))
        for flag, variable, default, _ in rows
    ]


def titles(sections: Any) -> dict[str, Any]:
    """Return all sections by heading."""
    sections_by_title: dict[str, Any] = {}
    for field in dataclasses.fields(sections):
        if dataclasses.is_dataclass(field.default):
            sections_by_title |= titles(field.default) or {field.metadata["title"]: field.default}
    return sections_by_title


def test_defaults_are_documented() -> None:
    settings = load([], {}).settings
    assert settings == Settings()
    assert sections(settings).split("\n## ")[1:] == TABLES


@pytest.mark.parametrize(("title", "section"), titles(Settings()).items())
def test_section_defaults_are_documented(title: str, section: Any) -> None:
    rows = [(f, f.metadata, show(getattr(section, f.name))) for f in dataclasses.fields(section)]
    names = [
        (f"--{metadata['flag']}" + (f", -{metadata['short']}" if metadata["short"] else "") if metadata["flag"] else "")
        for _, metadata, _ in rows
    ]
    assert documented(title) == [
        (name, metadata["env"], default) for name, (_, metadata, default) in zip(names, rows, strict=True)
    ]


def test_sections_have_the_loaded_defaults() -> None:
    settings = load([], {}).settings
    assert settings.process == ProcessSettings()
    assert settings.kubernetes == KubernetesSettings()
    assert settings.authority == AuthoritySettings()
    assert settings.webhook == WebhookSettings()
    assert settings.mesh == MeshSettings()
    assert settings.mesh.ambient == AmbientSettings()


CHECKED = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
    "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX": "10.1.0.0/16",
    "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX": "fd00::/64",
    "PILOT_CERT_PROVIDER": "none",
    "PILOT_JWT_ENABLE_REMOTE_JWKS": "envoy",
}
"""Values of settings with a check."""


def sample(default: Any) -> tuple[str, Any]:
    """Return a text other than the default, and its parsed value."""
    if isinstance(default, bool):
        return ("false", False) if default else ("true", True)
    if isinstance(default, Duration):
        return "9.5s", Duration(9_500_000_000)
    if isinstance(default, int):
        return "-12345", -12345
    if isinstance(default, float):
        return "2.75", 2.75
    return ("a,b", ("a", "b")) if isinstance(default, tuple) else ("Some text", "Some text")


def changed_settings(argv: list[str], environ: dict[str, str]) -> dict[str, Any]:
    """Return the settings that differ from the defaults, by path. Fails if there are warnings."""
    loaded = load(argv, environ)
    assert loaded.warnings == []
    values = {".".join(d.path): (attrgetter(".".join(d.path))(loaded.settings), d.default) for d in DECLARED}
    return {path: value for path, (value, default) in values.items() if value != default}


def test_variable_sets_only_its_field() -> None:
    with Rows() as rows:
        for declaration in DECLARED:
            if declaration.env:
                with rows.row(declaration.env):
                    text, value = sample(declaration.default)
                    if declaration.check is not None:
                        text = value = CHECKED[declaration.env]
                    path, ambient = ".".join(declaration.path), "mesh.ambient.enabled"
                    environ = {**(AMBIENT if path.startswith("mesh.ambient.") else {}), declaration.env: text}
                    enabled = {ambient: True} if AMBIENT.keys() & environ.keys() else {}
                    assert changed_settings([], environ) == {**enabled, path: value}


def test_flag_sets_only_its_field() -> None:
    with Rows() as rows:
        for declaration in DECLARED:
            if declaration.flag:
                with rows.row(declaration.flag):
                    text, value = sample(declaration.default)
                    value = ("a,b",) if declaration.repeated else value
                    assert changed_settings([f"--{declaration.flag}={text}"], {}) == {".".join(declaration.path): value}
                    flags = load([f"--{declaration.flag}={text}"], {}).flags
                    assert flags == {**load([], {}).flags, declaration.flag: text}


@pytest.mark.parametrize(
    ("variable", "text", "reason"),
    [
        ("PILOT_HTTP10", "yes", "'yes' is not a boolean: use true or false"),
        ("PILOT_DEBOUNCE_AFTER", "soon", "invalid duration 'soon': units are h, m, s and ms"),
        (
            "PILOT_CERT_PROVIDER",
            "isttiod",
            "'isttiod' is none of istiod, none, custom or k8s.io/SIGNER; did you mean istiod?",
        ),
        ("DEFAULT_WORKLOAD_CERT_TTL", "7d", "invalid duration '7d': units are h, m, s and ms; write 168h"),
        (
            "PILOT_JWT_ENABLE_REMOTE_JWKS",
            "proxy",
            "'proxy' is not one of false, istiod, envoy, true, hybrid",
        ),
        (
            "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX",
            "240.240.0.0",
            "'240.240.0.0' has no prefix length; append it, as in 240.240.0.0/16",
        ),
        (
            "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX",
            "240.240.0.0/32",
            "'240.240.0.0/32' has no address to allocate; use a shorter prefix length, as in 240.240.0.0/16",
        ),
        (
            "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX",
            "240.240.0.0/16",
            "'240.240.0.0/16' is not an IPv6 prefix; write one such as 2001:2::/48",
        ),
        (
            "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX",
            "x/48",
            "'x/48' is not an address prefix; write one such as 2001:2::/48",
        ),
        ("PILOT_XDS_MAX_NAME_BYTES", "8Mi", "'8Mi' is not an integer; write 8388608"),
        ("PILOT_DEBOUNCE_MAX", "-1s", "'-1s' is negative"),
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "collector:4318",
            "'collector:4318' is not a URL; did you mean http://collector:4318?",
        ),
        ("PILOT_XDS_MAX_TYPES", "64.0", "'64.0' is not an integer"),
        ("PILOT_XDS_MAX_TYPES", "６４", "'６４' is not an integer"),
        ("PILOT_TRACE_SAMPLING", "half", "'half' is not a number between 0 and 100"),
        ("PILOT_TRACE_SAMPLING", "nan", "'nan' is not a finite number between 0 and 100"),
        ("ISTIO_GPRC_MAXSTREAMS", "1_0", "'1_0' is not an integer"),
        ("PILOT_MAX_REQUESTS_PER_SECOND", "inf", "'inf' is not a finite number"),
    ],
)
def test_invalid_variable_is_ignored_with_a_warning(variable: str, text: str, reason: str) -> None:
    loaded = load([], {variable: text})
    assert loaded.settings == Settings()
    assert loaded.warnings == [f"environment variable {variable} is ignored: {reason}"]


def test_empty_variables() -> None:
    empty = load(
        [], {"INJECTION_WEBHOOK_CONFIG_NAME": "", "VALIDATION_WEBHOOK_CONFIG_NAME": "", "POD_NAMESPACE": ""}
    ).settings
    assert (empty.kubernetes.injection_webhook, empty.kubernetes.validation_webhook, empty.mesh.registry.namespace) == (
        "",
        "",
        "istio-system",
    )


def test_flag_wins_over_an_invalid_variable() -> None:
    loaded = load(["--keepaliveInterval=1m"], {"GRPC_KEEPALIVE_INTERVAL": "often"})
    assert loaded.settings.serve.keepalive_interval == Duration(60_000_000_000)
    assert [warning.partition(":")[0] for warning in loaded.warnings] == [
        "environment variable GRPC_KEEPALIVE_INTERVAL is ignored"
    ]


@dataclasses.dataclass(frozen=True)
class Door:
    name: str = setting("front", "Name of the door.", flag="door", short="d", env="DOOR")
    keys: tuple[str, ...] = setting((), "Who has a key.", env="KEYS")
    ways: tuple[str, ...] = setting((), "Ways through it.", flag="way", repeated=True)
    guests: tuple[str, ...] = setting(("a", "b"), "Who may come.", flag="guests")
    is_open: bool = setting(False, "Let everybody in.", flag="open")


@dataclasses.dataclass(frozen=True)
class Lock:
    turns: int = setting(2, "Turns of the key.", flag="turns")
    force: float = setting(0.5, "Force that it takes.", flag="force", env="FORCE")
    patience: Duration = setting(FOREVER, "Time until it closes.", flag="patience")  # noqa: RUF009


@dataclasses.dataclass(frozen=True)
class Inside:
    lock: Lock = section(Lock(), "Locks")  # noqa: RUF009


@dataclasses.dataclass(frozen=True)
class House:
    door: Door = section(Door(), "Doors")  # noqa: RUF009
    inside: Inside = section(Inside())  # noqa: RUF009


def test_help_text() -> None:
    assert (
        flag_sections(House())
        == """
Doors
  --door, -d TEXT
        Name of the door. (default front; variable DOOR)
  --way TEXT
        Ways through it.
  --guests TEXT,TEXT
        Who may come. (default a,b)
  --open
        Let everybody in. (default false)

Locks
  --turns NUMBER
        Turns of the key. (default 2)
  --force NUMBER
        Force that it takes. (default 0.5; variable FORCE)
  --patience DURATION
        Time until it closes. (default 2562047h47m16.854775807s)
"""
    )


def test_document_tables() -> None:
    head = "| flag | variable | default | meaning |\n|---|---|---|---|\n"
    assert (
        sections(House())
        == f"""
## Doors

{head}| `--door`, `-d` | `DOOR` | `front` | Name of the door. |
|  | `KEYS` |  | Who has a key. |
| `--way` |  |  | Ways through it. |
| `--guests` |  | `a,b` | Who may come. |
| `--open` |  | `false` | Let everybody in. |

## Locks

{head}| `--turns` |  | `2` | Turns of the key. |
| `--force` | `FORCE` | `0.5` | Force that it takes. |
| `--patience` |  | `2562047h47m16.854775807s` | Time until it closes. |
"""
    )


def test_nested_sections() -> None:
    argv = ["-d", "back", "--way=in,out", "--way=up", "--guests=c, d", "--turns=3", "--guests=e"]
    loaded = load_sections(House(), argv, {"FORCE": "1e1", "DOOR": "x"})
    door = Door(name="back", ways=("in,out", "up"), guests=("c", "d", "e"))
    assert loaded.settings == House(door, Inside(Lock(turns=3, force=10.0)))
    assert loaded.flags == {
        "door": "back",
        "force": "10",
        "guests": "c,d,e",
        "open": "false",
        "patience": "2562047h47m16.854775807s",
        "turns": "3",
        "way": "in,out,up",
    }
    assert loaded.warnings == []


def test_main_prints_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.split("\n## ")[1:] == TABLES


def test_misspelt_flag_is_an_error_if_strict() -> None:
    message = r"^unknown flag --confgDir has no effect; did you mean --configDir\?$"
    with pytest.raises(FlagError, match=message):
        load_sections(Settings(), ["--confgDir=a"], {}, strict=True)
    assert load_sections(Settings(), ["--other=a"], {}, strict=True).warnings == ["unknown flag --other has no effect"]

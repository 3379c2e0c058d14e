"""Settings from flags and environment variables."""

from __future__ import annotations

import pathlib
import re
from operator import attrgetter

import pytest
import yaml

from pilot.agent.agent_settings import AgentSettings
from pilot.lib.duration import Duration
from pilot.lib.flags import FlagError, scan
from pilot.settings import Settings
from pilot.settings.declaration import declared
from pilot.settings.document import document
from pilot.settings.parse import load
from pilot.settings.without_effect import AGENT_VARIABLES, VARIABLES


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
        (["--grpcAddr", ":1"], "serve.grpc_address", ":1"),
        (["--grpcAddr=:1"], "serve.grpc_address", ":1"),
        (["--grpcAddr="], "serve.grpc_address", ""),
        (["--grpcAddr", ":1", "--grpcAddr", ":2"], "serve.grpc_address", ":2"),
        (["-n", "mesh"], "mesh.registry.namespace", "mesh"),
        (["-nmesh"], "mesh.registry.namespace", "mesh"),
        (["-n=mesh"], "mesh.registry.namespace", "mesh"),
        (["--log_as_json"], "log.as_json", True),
        (["--log_as_json=false"], "log.as_json", False),
        (["--log_as_json=T"], "log.as_json", True),
        (["--shutdownDuration", "1m30s"], "process.shutdown_duration", Duration(90_000_000_000)),
        (["--log_target", "stdout", "--log_target", "a,b"], "log.targets", ("stdout", "a", "b")),
        (["--configDir", "-odd-"], "ingest.config_dirs", ("-odd-",)),
        (["--configDir", "a, b", "--configDir=west=c,d", "--configDir="], "ingest.config_dirs", ("a, b", "west=c,d")),
        (["--unknown", "value", "--domain", "d"], "mesh.registry.domain", "d"),
        (["--unknown=value", "--domain", "d"], "mesh.registry.domain", "d"),
        (["--unknown", "--domain", "d"], "mesh.registry.domain", "d"),
        (["-x", "1", "--domain", "d"], "mesh.registry.domain", "d"),
        (["--domain", "d", "--"], "mesh.registry.domain", "d"),
    ],
)
def test_flags(argv: list[str], field: str, value: object) -> None:
    assert attrgetter(field)(load(argv, {}).settings) == value


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
def test_invalid_flags(argv: list[str], text: str) -> None:
    with pytest.raises(FlagError, match=text):
        load(argv, {})


def test_unknown_flags_are_ignored_with_a_warning() -> None:
    loaded = load(["--plugins", "0", "-v"], {})
    assert [w.split()[2] for w in loaded.warnings] == ["--plugins", "--v"]
    assert loaded.warnings[0] == "unknown flag --plugins has no effect"
    assert load(["--confgDir=x"], {}).warnings == ["unknown flag --confgDir has no effect; did you mean --configDir?"]
    assert load(["--revision=x"], {}).warnings == [
        "unknown flag --revision has no effect; set the environment variable REVISION"
    ]


@pytest.mark.parametrize(
    ("environ", "field", "value"),
    [
        ({"POD_NAMESPACE": "mesh"}, "mesh.registry.namespace", "mesh"),
        ({"PILOT_DEBOUNCE_AFTER": "0"}, "ingest.debounce_after", Duration(0)),
        ({"PILOT_HTTP10": "1"}, "mesh.listeners.http10", True),
        ({"ISTIO_GPRC_MAXSTREAMS": "10"}, "serve.max_streams", 10),
        ({"PILOT_MAX_REQUESTS_PER_SECOND": "2.5"}, "serve.stream_rate", 2.5),
        ({"POD_NAMESPACE": ""}, "mesh.registry.namespace", "istio-system"),
    ],
)
def test_environment(environ: dict[str, str], field: str, value: object) -> None:
    loaded = load([], environ)
    assert attrgetter(field)(loaded.settings) == value
    assert not loaded.warnings


def test_flag_wins_over_its_variable() -> None:
    assert load(["--namespace", "flag"], {"POD_NAMESPACE": "variable"}).settings.mesh.registry.namespace == "flag"


def test_every_setting_is_documented_and_can_be_set() -> None:
    tables = {part.partition("\n")[0]: part for part in document().split("\n## ")[1:]}
    flags, variables = set(), set()
    for declaration in declared(Settings()):
        assert declaration.flag or declaration.env, declaration.path
        assert declaration.about.endswith("."), declaration.path
        assert declaration.title, declaration.path
        assert declaration.about in tables[declaration.title], declaration.path
        assert declaration.flag not in flags, declaration.flag
        assert declaration.env not in variables, declaration.env
        flags.add(declaration.flag or declaration.path)
        variables.add(declaration.env or declaration.path)


def test_boolean_variables_change_only_their_setting() -> None:
    for declaration in declared(Settings()):
        if isinstance(declaration.default, bool) and declaration.env:
            settings = load([], {declaration.env: str(not declaration.default)}).settings
            paths = [
                other.path
                for other in declared(Settings())
                if attrgetter(".".join(other.path))(settings) != other.default
            ]
            assert paths == [declaration.path]


def test_scan_separates_flags_and_arguments() -> None:
    assert scan(["a", "--known", "1", "b", "--other", "2"], {"known"}, set(), {}) == (
        {"known": ["1"]},
        ["other"],
        ["a", "b"],
    )


def test_every_setting_is_used() -> None:
    root = pathlib.Path(__file__).resolve().parents[3] / "pilot"
    code = "".join(path.read_text(encoding="utf-8") for path in root.rglob("*.py") if path.parent.name != "settings")
    words = set(re.findall(r"\.(\w+)", code))
    assert [s.path for s in declared(Settings()) if s.path[-1] not in words] == []


def test_ambient_variable_without_ambient_is_reported() -> None:
    environ = {"AMBIENT_ENABLE_MULTI_NETWORK": "true"}
    assert load([], environ).warnings == [
        "environment variable AMBIENT_ENABLE_MULTI_NETWORK is ignored: PILOT_ENABLE_AMBIENT is off"
    ]
    loaded = load([], {**environ, "PILOT_ENABLE_AMBIENT": "true"})
    assert not loaded.warnings
    assert loaded.settings.mesh.ambient.multi_network


def test_percentage_out_of_range_is_ignored_with_a_warning() -> None:
    loaded = load([], {"PILOT_TRACE_SAMPLING": "150"})
    assert loaded.warnings == [
        "environment variable PILOT_TRACE_SAMPLING is ignored: 150 is not between 0 and 100",
    ]
    assert loaded.settings.mesh.telemetry.trace_sampling == 1
    assert load([], {"PILOT_TRACE_SAMPLING": "100"}).settings.mesh.telemetry.trace_sampling == 100


def test_istiod_variables_without_effect_are_reported() -> None:
    warnings = load([], {"PILOT_PUSH_THROTTLE": "10", "PILOT_XDS_CACHE_SIZE": ""}).warnings
    assert warnings == [
        "environment variable PILOT_PUSH_THROTTLE has no effect: pushes are limited by size; set PILOT_PUSH_BYTES_IN_FLIGHT"
    ]


def test_every_variable_of_istio_is_read_or_reported_to_have_no_effect() -> None:
    """The file lists the variables of istiod and of its agent."""
    names = (pathlib.Path(__file__).with_name("istio_variables.txt")).read_text("utf-8").split()
    ours = {d.env for settings in (Settings(), AgentSettings()) for d in declared(settings)}
    others = [name for name in names if name not in ours | VARIABLES.keys() | AGENT_VARIABLES.keys()]
    assert others == ["ISTIO_META_ENABLE_SELF_DISCOVERY"]  # becomes metadata of the node


def test_no_variable_is_both_read_and_without_effect() -> None:
    assert {d.env for d in declared(Settings())} & VARIABLES.keys() == set()


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("PILOT_DEBOUNCE_AFTR", "; did you mean PILOT_DEBOUNCE_AFTER?"),
        ("PILOT_PUSH_THROTLE", "; did you mean PILOT_PUSH_THROTTLE?"),
        ("AMBIENT_ENABLE_XYZW", ""),
        ("ENABLE_NATIVE_SIDECAR", "; did you mean ENABLE_NATIVE_SIDECARS?"),
        ("ISTIO_Q", ""),
        ("TOKEN_AUDIENCE", "; did you mean TOKEN_AUDIENCES?"),
    ],
)
def test_unknown_variable_has_one_warning(name: str, suggestion: str) -> None:
    (warning,) = load([], {name: "x"}).warnings
    assert warning.startswith(f"unknown environment variable {name} has no effect")
    assert not suggestion or warning.endswith(suggestion)


@pytest.mark.parametrize(
    "name",
    [
        "HOME",
        "PYISTIOD_X",
        "ISTIO_INGRESSGATEWAY_SERVICE_HOST",
        "ISTIO_INGRESSGATEWAY_SERVICE_PORT_HTTPS",
        "ISTIO_INGRESSGATEWAY_PORT",
        "PILOT_PORT_15010_TCP_ADDR",
    ],
)
def test_variables_of_others_have_no_warning(name: str) -> None:
    assert load([], {name: "x"}).warnings == []


def test_quiet_period_longer_than_the_maximum_delay_is_reported() -> None:
    assert load([], {"PILOT_DEBOUNCE_AFTER": "30s"}).warnings == [
        "PILOT_DEBOUNCE_AFTER (30s) is longer than PILOT_DEBOUNCE_MAX (10s): "
        "each change is applied after 10s, without a quiet period"
    ]
    assert load([], {"PILOT_DEBOUNCE_AFTER": "30s", "PILOT_DEBOUNCE_MAX": "30s"}).warnings == []


def test_number_of_warnings_about_unknown_variables_is_limited() -> None:
    assert len(load([], {f"PILOT_{number}": "x" for number in range(1000)}).warnings) == 20


def test_variables_of_the_manifests_are_known() -> None:
    root = pathlib.Path(__file__).parents[3] / "deploy" / "manifests"
    documents = (d for path in root.rglob("*.yaml") for d in yaml.safe_load_all(path.read_text()) if d)
    containers = [
        container
        for document in documents
        if document["kind"] == "Deployment"
        for container in document["spec"]["template"]["spec"]["containers"]
        if container["name"] == "discovery"
    ]
    assert containers
    for container in containers:
        environ = {variable["name"]: "" for variable in container["env"]}
        assert not [w for w in load([], environ).warnings if w.startswith("unknown")]

"""Listen addresses, cluster aliases and registries from flags."""

from __future__ import annotations

import pathlib

import pytest

from pilot.bootstrap.options import (
    ListenAddresses,
    check_names,
    check_security,
    check_sources,
    parse_addresses,
    parse_aliases,
)
from pilot.lib.flags import FlagError
from pilot.lib.start_error import StartError
from pilot.settings.parse import load
from pilot.settings.process import IngestSettings
from pilot.xds.net.listen_address import Address

FLAGS = ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")


def addresses(**flags: object) -> ListenAddresses:
    return parse_addresses(load([f"--{name}={value}" for name, value in flags.items()], {}).settings)


def test_each_port_has_its_own_address() -> None:
    assert addresses() == ListenAddresses(
        http=Address("", 8080, "httpAddr"),
        grpc=Address("", 15010, "grpcAddr"),
        monitoring=Address("", 15014, "monitoringAddr"),
        secure=Address("", 15012, "secureGRPCAddr"),
        webhooks=Address("", 15017, "httpsAddr"),
        controlz=Address("127.0.0.1", 9876, "ctrlz_port"),
    )
    flags = {flag: f"host-{number}:{number}" for number, flag in enumerate(FLAGS)}
    assert addresses(**flags, ctrlz_address="*", ctrlz_port=65535) == ListenAddresses(
        Address("host-0", 0, FLAGS[0]),
        Address("host-1", 1, FLAGS[1]),
        Address("host-2", 2, FLAGS[2]),
        Address("host-3", 3, FLAGS[3]),
        Address("host-4", 4, FLAGS[4]),
        Address("", 65535, "ctrlz_port"),
    )
    assert addresses(**dict.fromkeys(FLAGS, ""), ctrlz_port=0) == ListenAddresses(None, None, None, None, None, None)


@pytest.mark.parametrize("flag", FLAGS)
def test_invalid_address_error_names_the_flag(flag: str) -> None:
    with pytest.raises(
        FlagError, match=f"^invalid argument for --{flag}: '15010' is not host:port or :port; did you mean :15010\\?$"
    ):
        addresses(**{flag: "15010"})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"httpAddr": ":15014"},
            "--httpAddr and --monitoringAddr have the same port 15014: change one of them; "
            "an empty --monitoringAddr= serves the pages of both",
        ),
        (
            {"grpcAddr": "127.0.0.1:7", "secureGRPCAddr": "0.0.0.0:7"},
            "--grpcAddr and --secureGRPCAddr have the same port 7: change one of them",
        ),
        (
            {"httpsAddr": "localhost:9876"},
            "--httpsAddr and --ctrlz_port have the same port 9876: change one of them",
        ),
    ],
)
def test_flags_with_the_same_port_are_named(flags: dict[str, str], message: str) -> None:
    with pytest.raises(FlagError) as raised:
        addresses(**flags)
    assert str(raised.value) == message


def test_ports_of_different_addresses_may_be_equal() -> None:
    addresses(httpAddr="127.0.0.2:7", grpcAddr="127.0.0.3:7", ctrlz_port=7)
    addresses(httpAddr=":0", grpcAddr=":0")


@pytest.mark.parametrize("port", [-1, 65536])
def test_invalid_controlz_port_is_rejected(port: int) -> None:
    with pytest.raises(FlagError, match=f"^invalid argument for --ctrlz_port: {port} is not a port$"):
        addresses(ctrlz_port=port)


def test_aliases_are_unique_per_cluster() -> None:
    assert parse_aliases([]) == {}
    assert parse_aliases(["a=one", "b=two=2"]) == {"a": "one", "b": "two=2"}
    with pytest.raises(
        FlagError, match=r"^invalid argument for --clusterAliases: cluster 'one' has more than one alias$"
    ):
        parse_aliases(["a=one", "b=one"])
    for alias in ("one", "=one", "one=", "="):
        with pytest.raises(FlagError, match=f"^invalid argument for --clusterAliases: '{alias}' is not alias=cluster$"):
            parse_aliases([alias])


def test_only_the_kubernetes_registry_is_accepted() -> None:
    check_sources(IngestSettings())
    for registries in ((), ("Consul",), ("Kubernetes", "Mock")):
        with pytest.raises(
            StartError, match=f"^--registries: unknown registry '{','.join(registries)}', expected Kubernetes$"
        ):
            check_sources(IngestSettings(registries=registries))


def test_unwritable_state_directory_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError) as caught:
        check_sources(IngestSettings(state_dir=str(tmp_path / "file" / "state")))
    assert str(caught.value) == (
        f"--stateDir or PILOT_STATE_DIR: cannot write to {tmp_path}/file/state: Not a directory; use a directory that this user may write to"
    )


def test_state_directory_is_created(tmp_path: pathlib.Path) -> None:
    check_sources(IngestSettings(state_dir=str(tmp_path / "state")))
    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tlsCertFile=a"], "--tlsCertFile requires --tlsKeyFile and --caCertFile"),
        (["--tlsKeyFile=a", "--caCertFile=a"], "--tlsKeyFile requires --tlsCertFile"),
        (["--tokenKeys=none"], "--tokenKeys: cannot use none: No such file or directory"),
        (
            ["--tokenKeys=text"],
            "--tokenKeys: cannot use text: invalid JSON: JSON is malformed: invalid character (byte 0); the file must contain a JSON Web Key Set (JWKS)",
        ),
    ],
)
def test_incomplete_credentials_are_refused(
    flags: list[str], message: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("text").write_text("hello")
    settings = load(flags, {}).settings
    with pytest.raises((FlagError, StartError)) as raised:
        check_security(settings.secure_port, settings.authentication)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--namespace=Foo_Bar", "--namespace or POD_NAMESPACE: 'Foo_Bar' is not the name of a namespace"),
        ("--namespace=Foo", "--namespace or POD_NAMESPACE: 'Foo' is not the name of a namespace"),
        ("--domain=", "--domain: '' is not a DNS name such as cluster.local"),
        ("--prometheusURL=prom:9090", "--prometheusURL: 'prom:9090' is not a URL; did you mean http://prom:9090?"),
    ],
)
def test_malformed_names_are_refused(flag: str, message: str) -> None:
    settings = load([flag], {}).settings
    with pytest.raises(FlagError) as raised:
        check_names(settings.mesh.registry, settings.debug)
    assert str(raised.value) == f"invalid argument for {message}"

"""Credentials and addresses of the control plane and the authority."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.upstream_server import (
    ClientCertificate,
    UpstreamConfigError,
    UpstreamServer,
    ca_upstream,
    xds_upstream,
)
from testing.control_planes.secure_plane import issue
from testing.control_planes.secure_port import NAME
from testing.security.certificates import root

CONTROL_PLANE = AgentSettings().control_plane


def test_client_certificate_replaces_the_token(tmp_path: pathlib.Path) -> None:
    server = UpstreamServer(
        "127.0.0.1:1", "SYSTEM", NAME, str(tmp_path / "token"), "west", ClientCertificate("k", "c"), {"X-Mine": "1"}
    )
    assert server.metadata() == [("clusterid", "west"), ("x-mine", "1")]


def test_files_of_the_client_certificate_that_cannot_be_used_are_named(tmp_path: pathlib.Path) -> None:
    credential = issue(root(1), "agent", now=root(1).certificate.not_valid_before_utc)
    chain, key = tmp_path / "cert-chain.pem", tmp_path / "key.pem"
    chain.write_bytes(credential.key)
    key.write_bytes(credential.chain)
    server = xds_upstream(
        dataclasses.replace(CONTROL_PLANE, xds_root="SYSTEM", provisioned_directory=str(tmp_path)), "a:1", False, {}
    )
    with pytest.raises(UpstreamConfigError) as raised:
        server.blocking_channel()
    assert str(raised.value) == (
        f"cannot use the client certificate: {chain} contains a private key, and {key} a certificate: swap the two files"
    )


def test_xds_client_certificate_comes_from_mounted_files() -> None:
    metadata = {"TLS_CLIENT_KEY": "/k", "TLS_CLIENT_CERT_CHAIN": "/c", "TLS_CLIENT_ROOT_CERT": "/r"}
    server = xds_upstream(CONTROL_PLANE, "a:1", False, {}, metadata)
    assert (server.client_certificate, server.root) == (ClientCertificate("/k", "/c"), "/r")
    provisioned = xds_upstream(
        dataclasses.replace(CONTROL_PLANE, xds_root="/own", provisioned_directory="/p"), "a:1", False, {}, None
    )
    assert (provisioned.client_certificate, provisioned.root) == (
        ClientCertificate("/p/key.pem", "/p/cert-chain.pem"),
        "/own",
    )


def test_token_is_never_sent_in_plaintext(tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").write_text("secret")
    plain = xds_upstream(AgentSettings().control_plane, "127.0.0.1:15010", True, {})._replace(
        token_file=str(tmp_path / "token")
    )
    assert all(name != "authorization" for name, _ in plain.metadata())
    assert ("authorization", "Bearer secret") in plain._replace(root="SYSTEM").metadata()


@pytest.mark.parametrize(
    ("details", "hint"),
    [
        ("SSL routines: WRONG_VERSION_NUMBER", "the port does not speak TLS: use the secure port of the control plane"),
        ("Cannot check peer: missing selected ALPN property.", "the port speaks TLS but not gRPC: use the secure port"),
        ("(Trying to connect an http1.x server (HTTP status 400))", "the port accepts no gRPC without TLS"),
    ],
)
def test_wrong_ports_are_named(details: str, hint: str) -> None:
    text = xds_upstream(CONTROL_PLANE, "a:1", False, {}).explain(details)
    assert text.startswith(f"{details}; {hint}")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("istiod.mesh.svc:15012", "istiod.mesh.svc"),
        ("localhost:15012", NAME),
        ("127.0.0.1:15012", NAME),
        ("[::1]:15012", NAME),
    ],
)
def test_local_control_plane_keeps_its_service_name(address: str, name: str) -> None:
    assert ca_upstream(CONTROL_PLANE, address, {}).server_name == name


@pytest.mark.parametrize(
    ("ca_root", "provider", "is_mounted", "provisioned", "root"),
    [
        ("", "istiod", True, "", "./var/run/secrets/istio/root-cert.pem"),
        ("", "custom", True, "", "./etc/certs/root-cert.pem"),
        ("", "custom", False, "", "./var/run/secrets/istio/root-cert.pem"),
        ("", "custom", False, "/prov", "/prov/root-cert.pem"),
        ("", "istiod", True, "/prov", "/prov/root-cert.pem"),
        ("/given.pem", "custom", True, "/prov", "/given.pem"),
    ],
)
def test_ca_root_selection(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    ca_root: str,
    provider: str,
    is_mounted: bool,
    provisioned: str,
    root: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if is_mounted:
        (tmp_path / "etc" / "certs").mkdir(parents=True)
        (tmp_path / "etc" / "certs" / "root-cert.pem").write_text("")
    settings = dataclasses.replace(
        CONTROL_PLANE, ca_root=ca_root, cert_provider=provider, provisioned_directory=provisioned
    )
    server = ca_upstream(settings, "istiod:15012", {})
    assert server.root == root
    assert server.client_certificate == (
        ClientCertificate("/prov/key.pem", "/prov/cert-chain.pem") if provisioned else None
    )

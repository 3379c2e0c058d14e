"""Registry logins in Docker configurations."""

from __future__ import annotations

import json

import pytest

from pilot.agent.wasm.docker_credentials import Login, find_login

LOGIN = Login("lab", "secret")


@pytest.mark.parametrize(
    ("entry", "host", "login"),
    [
        ({"auth": "bGFiOnNlY3JldA=="}, "r.example.com", LOGIN),
        ({"auth": "bGFiOnNlY3JldA=="}, "https://r.example.com/v1/", LOGIN),
        ({"auth": "bGFiOnNlY3JldAAA"}, "r.example.com", LOGIN),  # padded with zero bytes, as some programs write it
        ({"username": "lab", "password": "secret"}, "r.example.com", LOGIN),
        ({"username": "x", "auth": "bGFiOnNlY3JldA=="}, "r.example.com", LOGIN),
        ({"auth": "bGFi"}, "r.example.com", None),
        ({"password": "secret"}, "r.example.com", None),
        ({"auth": "bGFiOnNlY3JldA=="}, "r.example.com:443", None),
        ({"auth": "bGFiOnNlY3JldA=="}, "docker.io", None),
    ],
)
def test_login_is_matched_by_registry_host(entry: dict[str, str], host: str, login: Login | None) -> None:
    assert find_login(json.dumps({"auths": {"other": {"auth": "YTpi"}, host: entry}}), "r.example.com") == login


@pytest.mark.parametrize("host", ["https://index.docker.io/v1/", "docker.io", "registry-1.docker.io"])
def test_docker_hub_has_several_names(host: str) -> None:
    assert find_login(json.dumps({"auths": {host: {"auth": "bGFiOnNlY3JldA=="}}}), "index.docker.io") == LOGIN


@pytest.mark.parametrize(
    ("secret", "text"),
    [("x", "not a Docker configuration"), ('{"auths": {"r": {"auth": "?"}}}', "not valid base64 text")],
)
def test_invalid_pull_secret_is_rejected(secret: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        find_login(secret, "r")

"""Variables in the path of the injection webhook."""

from __future__ import annotations

import pytest

from webhook.server.path import environment_of


@pytest.mark.parametrize(
    ("path", "variables"),
    [
        ("", {}),
        ("/inject", {}),
        ("/inject/", {}),
        ("/inject/cluster", {}),
        ("/inject/cluster/east", {"ISTIO_META_CLUSTER_ID": "east"}),
        ("/inject/cluster/east/net/n1/", {"ISTIO_META_CLUSTER_ID": "east", "ISTIO_META_NETWORK": "n1"}),
        ("/inject/key/a--slash--b/other/c/odd", {"KEY": "a/b", "OTHER": "c"}),
        ("/inject//x/key/v", {"KEY": "v"}),
        ("/inject/:ENV:cluster=a:ENV:A=b=c:ENV:=x:ENV:C=:ENV:D", {"ISTIO_META_CLUSTER_ID": "a", "A": "b=c", "C": ""}),
    ],
)
def test_environment_from_the_path(path: str, variables: dict[str, str]) -> None:
    assert environment_of(path) == variables

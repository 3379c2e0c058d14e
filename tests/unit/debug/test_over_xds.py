"""Client status over xDS."""

from __future__ import annotations

from pilot.debug.over_xds import client_config
from pilot.mesh.model.proxy import NodeType, Proxy
from testing.mesh.debug_server import FakeConnection, FakeWatch

PROXY = Proxy(
    type=NodeType.SIDECAR,
    id="web-0.a",
    ips=("10.0.0.1",),
    dns_domain="",
    namespace="a",
    metadata={"CLUSTER_ID": "east"},
    version="1.30.0",
)


def test_unsent_type_has_the_zero_time() -> None:
    watches = {
        "b": FakeWatch(sent_at=0.0, nonce_sent="", nonce_acked="", last_error="no such cluster"),
        "a": FakeWatch(sent_at=1.5),
    }
    config = client_config(FakeConnection("web-0.a-1", "web-0.a", PROXY, subscriptions=watches))
    assert [entry.type_url for entry in config.generic_xds_configs] == ["a", "b"]
    assert [entry.last_updated.ToJsonString() for entry in config.generic_xds_configs] == [
        "1970-01-01T00:00:01.500Z",
        "0001-01-01T00:00:00Z",
    ]
    sent_config, unsent_config = config.generic_xds_configs
    assert not sent_config.HasField("error_state")
    assert (unsent_config.error_state.details, unsent_config.error_state.last_update_attempt) == (
        "no such cluster",
        unsent_config.last_updated,
    )
    assert dict(config.node.metadata.items()) == {"CLUSTER_ID": "east", "NAMESPACE": "a", "ISTIO_VERSION": "1.30.0"}

"""Type URLs of responses."""

from __future__ import annotations

import pytest

from pilot.agent.xds.response_type import read_type_url
from testing.control_planes.secure_port import METHODS
from tests.unit.agent.xds.test_xds_proxy import CLUSTER, response

SOTW, DELTA = METHODS


def test_type_url_is_read_from_the_bytes() -> None:
    assert read_type_url(response(CLUSTER, DELTA, "1", b"x" * 1000, b"")) == CLUSTER
    assert read_type_url(response(CLUSTER, SOTW, "1", b"x" * 1000)) == CLUSTER
    assert (
        read_type_url(b"\x08\x96\x01\x0d1234\x1112345678" + response(CLUSTER)) == CLUSTER
    )  # fields of every wire type


@pytest.mark.parametrize(
    "raw", [b"", b"\x22", b"\x22\x05abc", b"\x22\x01\xff", b"\x0b", b"\xff" * 12, response(CLUSTER)[:-1]]
)
def test_invalid_response_has_no_type(raw: bytes) -> None:
    assert read_type_url(raw) == ""

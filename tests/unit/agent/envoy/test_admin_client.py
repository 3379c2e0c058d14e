"""Client of the admin port of Envoy."""

from __future__ import annotations

import pytest

from pilot.agent.envoy.admin_client import AdminClient, AdminError
from tests.unit.agent.conftest import App, closed_port


def test_admin_client_parses_stats_and_reports_errors(app: App) -> None:
    admin = AdminClient("127.0.0.1", app.port)
    app.body = b"a.b: 3\nhistogram: P0(1,2)\nc: 4\n"
    assert admin.stats("^a|c$") == {"a.b": 3, "c": 4}
    assert app.requests[0][0] == "/stats?usedonly&filter=%5Ea%7Cc%24"
    app.status = 500
    with pytest.raises(AdminError, match="returned status 500 for GET"):
        admin.stats("x")
    with pytest.raises(AdminError, match="does not respond"):
        AdminClient("127.0.0.1", closed_port()).stats("x")

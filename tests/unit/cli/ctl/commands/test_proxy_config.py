"""The note above resources that a proxy has not accepted."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.lib.xds_types import BY_SHORT_NAME
from tests.unit.cli.ctl.conftest import Run

SENT = {"sent": "2", "sentTime": "2026-11-24T03:46:32Z"}


@pytest.mark.parametrize(
    ("state", "note"),
    [
        (SENT | {"acked": "2"}, ""),
        (
            SENT | {"acked": "1", "lastError": "unknown\ncluster"},
            "Sent at 2026-11-24T03:46:32Z; REJECTED by the proxy, so not in force: unknown\\ncluster\n",
        ),
        (SENT | {"acked": "1"}, "Sent at 2026-11-24T03:46:32Z; not acknowledged, so it may not be in force\n"),
        ({}, ""),
    ],
    ids=["acknowledged", "rejected", "not acknowledged", "not sent"],
)
def test_resources_that_are_not_in_force_are_marked(
    run: Run, pages: dict[str, Any], state: dict[str, str], note: str
) -> None:
    resources = {BY_SHORT_NAME["rds"]: state, BY_SHORT_NAME["cds"]: SENT}
    pages["syncz"] = [{"proxy": "web-0.a", "cluster_id": "Kubernetes", "resources": resources}]
    pages["config_dump"] = {"configs": []}
    nothing = "This proxy has subscribed to routes, and the control plane has none for it."
    assert run("proxy-config", "routes", "web-0.a") == f"Proxy web-0.a in cluster Kubernetes\n{note}{nothing}\n"
    assert run("proxy-config", "endpoints", "web-0.a").endswith(
        "This proxy has not subscribed to endpoints, so the control plane has sent none.\n"
    )

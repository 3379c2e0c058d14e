"""The whole installation on a cluster in a box: `make cluster` in short. It needs root and the programs of Kubernetes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cluster.box.images import REPOSITORY
from tests.cluster.box.namespaces import in_namespaces
from tests.cluster.box.programs import reason_to_skip


@pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip())
@pytest.mark.timeout(400)
def test_installation_injection_traffic_and_upgrade() -> None:
    command = in_namespaces(sys.executable, "-m", "tests.cluster", "--run", "short")
    result = subprocess.run(command, capture_output=True, text=True, timeout=390, check=False, cwd=REPOSITORY)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-6000:]
    assert "0 failures" in result.stdout

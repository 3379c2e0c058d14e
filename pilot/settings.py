"""Every setting of the process: flag, environment variable, default and one sentence. Passed in, never global."""
from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Settings:
    """What flags and environment say. A field that translation reads has the name of Istio's variable in its comment."""

    domain: str = "cluster.local"
    namespace: str = "istio-system"
    cluster_id: str = "Kubernetes"

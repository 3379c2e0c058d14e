"""Every WorkloadGroup."""

from __future__ import annotations

from pilot.config.networking.workload_group import WorkloadGroup
from pilot.mesh.kinds.view import KindView

workload_groups = KindView[WorkloadGroup]("WorkloadGroup", lambda db: db.workload_groups)

"""Every WorkloadGroup."""

from __future__ import annotations

from pilot.model.config.workload_group import WorkloadGroup
from pilot.model.views.kinds.view import KindView

workload_groups = KindView[WorkloadGroup]("WorkloadGroup", lambda db: db.workload_groups)

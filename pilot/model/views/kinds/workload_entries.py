"""Every WorkloadEntry of every cluster."""

from __future__ import annotations

from pilot.model.config.workload_entry import WorkloadEntryObject
from pilot.model.views.kinds.view import RegistryView

workload_entries = RegistryView[WorkloadEntryObject]("WorkloadEntry", lambda db: db.workload_entries)

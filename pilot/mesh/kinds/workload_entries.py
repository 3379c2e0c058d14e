"""Every WorkloadEntry of every cluster."""

from __future__ import annotations

from pilot.config.networking.workload_entry import WorkloadEntryObject
from pilot.mesh.kinds.view import RegistryView

workload_entries = RegistryView[WorkloadEntryObject]("WorkloadEntry", lambda db: db.workload_entries)

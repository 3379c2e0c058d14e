"""networking.istio.io WorkloadEntry. https://istio.io/latest/docs/reference/config/networking/workload-entry/"""

from __future__ import annotations

from pilot.config.base import Lenient, Strict, UInt32

REGISTRATION_GROUP = (
    "istio.io/autoRegistrationGroup"  # annotation: the WorkloadGroup that the entry was registered with
)


class WorkloadEntry(Strict, frozen=True):
    """A workload outside Kubernetes. `address` is an IP address, a hostname, or "unix://" and a path."""

    address: str = ""
    ports: dict[str, UInt32] = {}
    labels: dict[str, str] = {}
    network: str = ""
    locality: str = ""
    weight: UInt32 = 0
    service_account: str = ""


class EntryCondition(Lenient, frozen=True):
    type: str = ""
    status: str = ""


class EntryStatus(Lenient, frozen=True):
    """The status of a WorkloadEntry. The Healthy condition is the result of health checks by the workload's proxy."""

    conditions: tuple[EntryCondition, ...] = ()


class WorkloadEntryObject(WorkloadEntry, frozen=True):
    """A WorkloadEntry object, including its status."""

    status: EntryStatus = EntryStatus()

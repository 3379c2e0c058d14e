from __future__ import annotations

import pytest

from pilot.lib.address_rules import AddressRules, BlockedAddress


@pytest.mark.parametrize(
    "address",
    [
        "168.63.129.16",
        "::ffff:168.63.129.16",
        "64:ff9b:1::7f00:1",
        "::127.0.0.1",
        "::10.0.0.1",
        "::1",
        "::",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "224.0.0.1",
    ],
)
def test_platform_and_embedded_addresses_are_not_public(address: str) -> None:
    with pytest.raises(BlockedAddress):
        AddressRules().check(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1", "64:ff9b::808:808", "::8.8.8.8"])
def test_public_addresses_are_allowed(address: str) -> None:
    AddressRules().check(address)


@pytest.mark.parametrize("address", ["168.63.129.16", "64:ff9b:1::1", "::1"])
def test_other_addresses_can_be_allowed(address: str) -> None:
    AddressRules(allowed=[address]).check(address)

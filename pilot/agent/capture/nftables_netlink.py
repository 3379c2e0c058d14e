"""Applies rules to the kernel's nftables over netlink, in one transaction and without external programs."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyroute2.netlink import NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST
from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_NFTABLES, nfgen_msg
from pyroute2.netlink.nfnetlink.nftsocket import (
    NFT_MSG_DELTABLE,
    NFT_MSG_NEWCHAIN,
    NFT_MSG_NEWRULE,
    NFT_MSG_NEWTABLE,
    nft_chain_msg,
    nft_rule_msg,
    nft_table_msg,
)

from pilot.agent.capture.capture_rules import CaptureChain, Family, Hook, RulesError, Verb
from pilot.agent.capture.nftables_expressions import PROTOCOL_FAMILIES, VERDICTS, build_expressions
from pilot.agent.capture.nftables_script import BASE_CHAINS, TABLE, chain_name

BEGIN, COMMIT = 0x10, 0x11  # NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END
HOOKS = {Hook.PREROUTING: 0, Hook.OUTPUT: 3}
NETLINK_NETFILTER = 12
ERROR = struct.Struct("=IHHIIi")  # the header of a message and an error code, 0 for success
RECEIVE_BYTES, TIMEOUT_SECONDS = 65536, 10.0


def apply(chains: Mapping[Family, Sequence[CaptureChain]]) -> None:
    """Replace all chains of the mesh in the network namespace of the calling thread.

    Raises RulesError if the kernel rejects the transaction. The rules are then unchanged.
    """
    begin, commit = (_build_message(nfgen_msg, kind, 0, 0, ()) for kind in (BEGIN, COMMIT))
    for message in (begin, commit):
        message["res_id"] = NFNL_SUBSYS_NFTABLES
    messages = [begin, *(message for family in Family for message in _replace(family, chains.get(family, ()))), commit]
    messages[-2]["header"]["flags"] |= NLM_F_ACK
    for number, message in enumerate(messages):
        message["header"]["sequence_number"] = number
        message.encode()
    try:
        _send(b"".join(message.data for message in messages), last=len(messages) - 2)
    except OSError as error:
        raise RulesError(f"nftables: {error.strerror or error}") from error


def _send(data: bytes, last: int) -> None:
    """Send a transaction and wait until the kernel has applied it. Raises OSError with the first error.

    The kernel reports each invalid message and acknowledges the message with the sequence number `last`. An error with
    the sequence number 0 rejects the whole transaction.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as kernel:
        kernel.settimeout(TIMEOUT_SECONDS)
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(data))
        kernel.bind((0, 0))
        kernel.send(data)
        first_error, number = 0, -1
        while number not in (0, last):
            response = kernel.recv(RECEIVE_BYTES)
            while len(response) >= ERROR.size:
                size, _, _, number, _, code = ERROR.unpack_from(response)
                first_error, response = first_error or -code, response[size:]
        if first_error:
            raise OSError(first_error, os.strerror(first_error))


def _replace(family: Family, chains: Sequence[CaptureChain]) -> Iterator[Any]:
    # Create the table first, because deleting a missing table is an error.
    yield _build_change(nft_table_msg, NFT_MSG_NEWTABLE, family, {"name": TABLE}, NLM_F_CREATE)
    yield _build_change(nft_table_msg, NFT_MSG_DELTABLE, family, {"name": TABLE})
    if not chains:
        return
    yield _build_change(nft_table_msg, NFT_MSG_NEWTABLE, family, {"name": TABLE}, NLM_F_CREATE)
    for chain in chains:
        yield _build_change(nft_chain_msg, NFT_MSG_NEWCHAIN, family, _chain_attributes(chain), NLM_F_CREATE)
    for chain in chains:
        for rule in chain.rules:
            location = {"table": TABLE, "chain": chain_name(chain.table, chain.name)}
            expressions = list(build_expressions(rule, chain.table, family))
            yield _build_change(
                nft_rule_msg,
                NFT_MSG_NEWRULE,
                family,
                {**location, "expressions": expressions},
                NLM_F_CREATE | NLM_F_APPEND,
            )


def _build_change(message_class: Any, kind: int, family: Family, attributes: Mapping[str, Any], flags: int = 0) -> Any:
    prefixed = [(f"{message_class.prefix}{name.upper()}", value) for name, value in attributes.items()]
    return _build_message(message_class, NFNL_SUBSYS_NFTABLES << 8 | kind, PROTOCOL_FAMILIES[family], flags, prefixed)


def _build_message(
    message_class: Callable[[], Any], kind: int, family: int, flags: int, attributes: Sequence[tuple[str, Any]]
) -> Any:
    message = message_class()
    message["header"]["type"], message["header"]["flags"] = kind, flags | NLM_F_REQUEST
    message["nfgen_family"], message["attrs"] = family, list(attributes)
    return message


def _chain_attributes(chain: CaptureChain) -> dict[str, Any]:
    attributes: dict[str, Any] = {"table": TABLE, "name": chain_name(chain.table, chain.name)}
    if chain.hook is not None:
        base = BASE_CHAINS[chain.table, chain.hook]
        hook = [("NFTA_HOOK_HOOKNUM", HOOKS[chain.hook]), ("NFTA_HOOK_PRIORITY", base.priority)]
        attributes |= {"hook": {"attrs": hook}, "policy": VERDICTS[Verb.ACCEPT], "type": base.type}
    return attributes

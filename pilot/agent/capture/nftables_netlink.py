"""Rules into the kernel's nftables, in one transaction: all of them are there at once, or none. No program is needed for it."""

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

from pilot.agent.capture.errors import RulesError
from pilot.agent.capture.nftables_expressions import PROTOCOL_FAMILIES, VERDICTS, rule_expressions
from pilot.agent.capture.nftables_script import BASES, TABLE, chain_name
from pilot.agent.capture.rule_language import CaptureChain, Family, Hook, Verb

BEGIN, COMMIT = 0x10, 0x11  # NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END
HOOKS = {Hook.PREROUTING: 0, Hook.OUTPUT: 3}
NETLINK_NETFILTER = 12
ERROR = struct.Struct("=IHHIIi")  # the head of a message, and the code of an error, 0 for none
ANSWER_BYTES, KERNEL_SECONDS = 65536, 10.0


def apply(chains: Mapping[Family, Sequence[CaptureChain]]) -> None:
    """Makes `chains` all of ours in the network namespace of the calling thread. RulesError where the kernel does not take them; then nothing
    has changed."""
    begin, commit = (_message(nfgen_msg, kind, 0, 0, ()) for kind in (BEGIN, COMMIT))
    for each in (begin, commit):
        each["res_id"] = NFNL_SUBSYS_NFTABLES
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
    """Returns once the kernel has taken a transaction. OSError with the first reason why it has not: it names each message that is wrong, and
    says that it has seen the `last`, but where it does not even begin."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as kernel:
        kernel.settimeout(KERNEL_SECONDS)
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(data))
        kernel.bind((0, 0))
        kernel.send(data)
        wrong, number = 0, -1
        while number not in (0, last):
            answer = kernel.recv(ANSWER_BYTES)
            while len(answer) >= ERROR.size:
                size, _, _, number, _, code = ERROR.unpack_from(answer)
                wrong, answer = wrong or -code, answer[size:]
        if wrong:
            raise OSError(wrong, os.strerror(wrong))


def _replace(family: Family, chains: Sequence[CaptureChain]) -> Iterator[Any]:
    yield _change(
        nft_table_msg, NFT_MSG_NEWTABLE, family, {"name": TABLE}, NLM_F_CREATE
    )  # one that is not there cannot be deleted
    yield _change(nft_table_msg, NFT_MSG_DELTABLE, family, {"name": TABLE})
    if not chains:
        return
    yield _change(nft_table_msg, NFT_MSG_NEWTABLE, family, {"name": TABLE}, NLM_F_CREATE)
    for chain in chains:
        yield _change(nft_chain_msg, NFT_MSG_NEWCHAIN, family, _chain(chain), NLM_F_CREATE)
    for chain in chains:
        for rule in chain.rules:
            place = {"table": TABLE, "chain": chain_name(chain.table, chain.name)}
            expressions = list(rule_expressions(rule, chain.table, family))
            yield _change(
                nft_rule_msg,
                NFT_MSG_NEWRULE,
                family,
                {**place, "expressions": expressions},
                NLM_F_CREATE | NLM_F_APPEND,
            )


def _change(make: Any, kind: int, family: Family, attributes: Mapping[str, Any], flags: int = 0) -> Any:
    named = [(f"{make.prefix}{name.upper()}", value) for name, value in attributes.items()]
    return _message(make, NFNL_SUBSYS_NFTABLES << 8 | kind, PROTOCOL_FAMILIES[family], flags, named)


def _message(make: Callable[[], Any], kind: int, family: int, flags: int, attributes: Sequence[tuple[str, Any]]) -> Any:
    message = make()
    message["header"]["type"], message["header"]["flags"] = kind, flags | NLM_F_REQUEST
    message["nfgen_family"], message["attrs"] = family, list(attributes)
    return message


def _chain(chain: CaptureChain) -> dict[str, Any]:
    found: dict[str, Any] = {"table": TABLE, "name": chain_name(chain.table, chain.name)}
    if chain.hook is not None:
        base = BASES[chain.table, chain.hook]
        hook = [("NFTA_HOOK_HOOKNUM", HOOKS[chain.hook]), ("NFTA_HOOK_PRIORITY", base.priority)]
        found |= {"hook": {"attrs": hook}, "policy": VERDICTS[Verb.ACCEPT], "type": base.type}
    return found

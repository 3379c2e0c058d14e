"""Proxies of a node, which ask for certificates in the names of the workloads whose traffic they carry: of those that run on their own node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pilot.config.kinds.kubernetes import POD
from pilot.config.kubernetes.pod import Pod
from pilot.config.object import Object, RegistryKey
from pilot.lib.spiffe import parse_identity
from pilot.mesh.tables.database import Mesh
from pilot.xds.authn.service_account import ServiceAccountTokens
from pilot.xds.identity import Caller, IdentityError

_POD = "authentication.kubernetes.io/pod-"


class NodeProxies:
    """Says whether a caller may have the certificate of another identity. `accounts` are the service accounts, as `namespace/name`, that node proxies
    run as; `tokens` reviews their tokens, which name the Pod that they were made for. `clusters` has the cluster of each name by which callers know
    it; other names are clusters' own."""

    def __init__(
        self, accounts: Collection[str], tokens: ServiceAccountTokens, db: Mesh, clusters: dict[str, str]
    ) -> None:
        self._accounts, self._tokens, self._db, self._clusters = frozenset(accounts), tokens, db, clusters

    async def check(self, caller: Caller, asked: str) -> None:
        """Returns where the caller may have the certificate of the identity `asked`; raises IdentityError where it may not."""
        wanted = parse_identity(asked)
        if wanted is None:
            raise IdentityError(f"{asked!r} is no identity of a service account")
        review = await self._tokens.review(caller)
        kind, _, account = review.username.replace(":", "/").partition("serviceaccount/")
        if kind != "system/" or account not in self._accounts:
            raise IdentityError(f"{review.username} is no account of node proxies")
        node = self._node(caller, review.extra, account)
        if not self._runs(node, wanted.namespace, wanted.service_account):
            raise IdentityError(f"{account} asks for {asked}, and no pod on node {node.name} runs as that")

    def _node(self, caller: Caller, extra: Mapping[str, Sequence[str]], account: str) -> RegistryKey:
        """Returns the node that the caller's Pod runs on."""
        name, uid = ("".join(extra.get(_POD + part, ())[:1]) for part in ("name", "uid"))
        namespace, _, service_account = account.partition("/")
        named = caller.header("clusterid")
        key = RegistryKey(self._clusters.get(named, named), namespace, name)
        row = POD.table(self._db).peek(key)
        if not (name and uid) or row is None or row.spec.uid != uid or row.spec.service_account_name != service_account:
            raise IdentityError(
                f"the token of {account} is not that of a pod that is known: {name!r} with uid {uid!r} in cluster {key.cluster}"
            )
        if not row.spec.node_name:
            raise IdentityError(f"pod {namespace}/{name} runs on no node")
        return RegistryKey(key.cluster, "", row.spec.node_name)

    def _runs(self, node: RegistryKey, namespace: str, service_account: str) -> bool:
        keys = (key for key in POD.table(self._db).peek_keys("namespace", namespace) if key.cluster == node.cluster)
        return any(
            _is_of(row, node.name, service_account)
            for key in keys
            if (row := POD.table(self._db).peek(key)) is not None
        )


def _is_of(row: Object[Pod], node: str, service_account: str) -> bool:
    pod = row.spec
    return pod.node_name == node and pod.service_account_name == service_account and pod.status.phase != "Failed"

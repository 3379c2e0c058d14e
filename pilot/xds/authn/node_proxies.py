"""Authorization of node proxies, which request certificates for the workloads on their node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pilot.config.kinds.kubernetes import POD
from pilot.config.kubernetes.pod import Pod
from pilot.config.object import Object, RegistryKey
from pilot.lib.spiffe import parse_identity
from pilot.mesh.tables.database import Mesh
from pilot.xds.authn.identity import Caller, IdentityError
from pilot.xds.authn.service_account import ServiceAccountTokens

_POD = "authentication.kubernetes.io/pod-"


class NodeProxies:
    """Checks whether a caller may receive the certificate of another identity.

    accounts: Service accounts of node proxies, as `namespace/name`.
    tokens: Reviews the tokens of node proxies, which are bound to a Pod.
    clusters: Cluster names, keyed by the names that callers use. A name that has no entry is used unchanged.
    """

    def __init__(
        self, accounts: Collection[str], tokens: ServiceAccountTokens, db: Mesh, clusters: dict[str, str]
    ) -> None:
        self._accounts, self._tokens, self._db, self._clusters = frozenset(accounts), tokens, db, clusters

    async def check(self, caller: Caller, identity: str) -> None:
        """Raise IdentityError if the caller may not receive the certificate of an identity."""
        target = parse_identity(identity)
        if target is None:
            raise IdentityError(f"{identity!r} is not the identity of a service account")
        review = await self._tokens.review(caller)
        prefix, _, account = review.username.replace(":", "/").partition("serviceaccount/")
        if prefix != "system/" or account not in self._accounts:
            raise IdentityError(f"{review.username} is not the service account of a node proxy")
        node = self._node(caller, review.extra, account)
        if not self._has_pod(node, target.namespace, target.service_account):
            raise IdentityError(f"{account} requests {identity}, but no pod on node {node.name} has this identity")

    def _node(self, caller: Caller, extra: Mapping[str, Sequence[str]], account: str) -> RegistryKey:
        """Return the node of the caller's Pod."""
        name, uid = ("".join(extra.get(_POD + part, ())[:1]) for part in ("name", "uid"))
        namespace, _, service_account = account.partition("/")
        cluster = caller.header("clusterid")
        key = RegistryKey(self._clusters.get(cluster, cluster), namespace, name)
        row = POD.table(self._db).peek(key)
        if not (name and uid) or row is None or row.spec.uid != uid or row.spec.service_account_name != service_account:
            raise IdentityError(
                f"the token of {account} is bound to an unknown pod: {name!r} with uid {uid!r} in cluster {key.cluster}"
            )
        if not row.spec.node_name:
            raise IdentityError(f"pod {namespace}/{name} is not scheduled on any node")
        return RegistryKey(key.cluster, "", row.spec.node_name)

    def _has_pod(self, node: RegistryKey, namespace: str, service_account: str) -> bool:
        keys = (key for key in POD.table(self._db).peek_keys("namespace", namespace) if key.cluster == node.cluster)
        return any(
            _matches(row, node.name, service_account)
            for key in keys
            if (row := POD.table(self._db).peek(key)) is not None
        )


def _matches(row: Object[Pod], node: str, service_account: str) -> bool:
    pod = row.spec
    return pod.node_name == node and pod.service_account_name == service_account and pod.status.phase != "Failed"

"""Who calls, by bearer token; TokenReview and SubjectAccessReview."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from testing.apiserver.request_info import Asked
from testing.apiserver.status_error import Refusal

ADMIN = "admin-token"


class User(NamedTuple):
    """A caller. `extra` is what a TokenReview tells beyond name and groups."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = {}


class Token(NamedTuple):
    """A token: whose it is, for whom, and whether it is valid no more."""

    user: User
    audiences: tuple[str, ...] = ("https://kubernetes.default.svc",)
    expired: bool = False


Allows = Callable[[str, Sequence[str], Mapping[str, Any]], bool]
"""Says whether a user with groups may do what the attributes of a resource say: verb, group, resource, namespace, name, subresource."""


def everybody(_: str, __: Sequence[str], ___: Mapping[str, Any]) -> bool:
    return True


class Tokens:
    """The tokens that there are, and who may do what. Without a token in a request nobody is let in."""

    def __init__(self) -> None:
        self.known: dict[str, Token] = {ADMIN: Token(User("admin", ("system:masters",)))}
        self.allows: Allows = everybody

    def service_account(
        self, namespace: str, name: str, token: str, audience: str = "istio-ca", pod: str = ""
    ) -> Token:
        """Make a token of a service account, bound to a pod where one is named."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        extra = (
            {"authentication.kubernetes.io/pod-name": [pod], "authentication.kubernetes.io/pod-uid": [f"uid-of-{pod}"]}
            if pod
            else {}
        )
        self.known[token] = Token(
            User(f"system:serviceaccount:{namespace}:{name}", groups, f"uid-of-{name}", extra), (audience,)
        )
        return self.known[token]

    def request(self, asked: Asked, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a TokenRequest with a token of the service account that it is made for."""
        spec = given.get("spec", {})
        name = f"token-{len(self.known)}-{asked.namespace}-{asked.name}"
        token = self.service_account(asked.namespace, asked.name, name)
        self.known[name] = token._replace(audiences=tuple(spec.get("audiences") or token.audiences))
        return {
            **given,
            "metadata": {"name": asked.name},
            "status": {"token": name, "expirationTimestamp": "2099-01-01T00:00:00Z"},
        }

    def user_of(self, header: str) -> User:
        """Return who calls. Refusal with 401 where the token is not known or expired."""
        kind, _, text = header.partition(" ")
        token = self.known.get(text) if kind.lower() == "bearer" else None
        if token is None or token.expired:
            raise Refusal(401, "Unauthorized")
        return token.user

    def check(self, user: User, asked: Asked) -> None:
        """Refuse with 403 what a user may not do."""
        resource = asked.resource
        attributes = {
            "verb": asked.verb,
            "group": resource.group,
            "resource": resource.plural,
            "namespace": asked.namespace,
            "name": asked.name,
            "subresource": asked.subresource,
        }
        if "system:masters" not in user.groups and not self.allows(user.name, user.groups, attributes):
            where = f' in the namespace "{asked.namespace}"' if asked.namespace else " at the cluster scope"
            named = f"{resource.plural}.{resource.group}".rstrip(".")
            message = f'{named} is forbidden: User "{user.name}" cannot {asked.verb} resource "{resource.plural}" in API group "{resource.group}"'
            raise Refusal(403, message + where)

    def review(self, asked: Asked, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a TokenReview or SubjectAccessReview with its answer."""
        spec = given.get("spec", {})
        status = self._authenticated(spec) if asked.resource.kind == "TokenReview" else self._allowed(spec)
        return {**given, "metadata": {}, "status": status}

    def _authenticated(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        token = self.known.get(spec.get("token", ""))
        wanted = spec.get("audiences") or ["https://kubernetes.default.svc"]
        if token is None or token.expired:
            return {"error": "[invalid bearer token]", "user": {}}
        audiences = [audience for audience in wanted if audience in token.audiences]
        if not audiences:
            return {"error": f"[invalid bearer token: it is for {list(token.audiences)}, not for {wanted}]", "user": {}}
        user = {
            "username": token.user.name,
            "uid": token.user.uid,
            "groups": list(token.user.groups),
            "extra": dict(token.user.extra),
        }
        return {"authenticated": True, "user": user, "audiences": audiences}

    def _allowed(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        allowed = self.allows(spec.get("user", ""), spec.get("groups") or (), spec.get("resourceAttributes") or {})
        return {"allowed": allowed, **({} if allowed else {"reason": "nobody allows it"})}

"""Authentication by bearer token; TokenReviews and SubjectAccessReviews."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from testing.apiserver.request_info import RequestInfo
from testing.apiserver.status_error import StatusError
from testing.security.tokens import AUDIENCE, claims, sign

ADMIN = "admin-token"


class User(NamedTuple):
    """An authenticated user. `extra` are the additional attributes of a TokenReview."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = {}


class Token(NamedTuple):
    """A bearer token: its user, its audiences, and whether it has expired."""

    user: User
    audiences: tuple[str, ...] = ("https://kubernetes.default.svc",)
    expired: bool = False


Authorizer = Callable[[str, Sequence[str], Mapping[str, Any]], bool]
"""Returns whether a user with groups is granted access, given the verb, group, resource, namespace, name and subresource."""


def allow_all(_: str, __: Sequence[str], ___: Mapping[str, Any]) -> bool:
    return True


class Tokens:
    """The valid tokens and the authorizer. Requests without a token are rejected."""

    def __init__(self) -> None:
        self.by_value: dict[str, Token] = {ADMIN: Token(User("admin", ("system:masters",)))}
        self.authorizer: Authorizer = allow_all

    def service_account(
        self, namespace: str, name: str, token: str, audience: str = "istio-ca", pod: str = ""
    ) -> Token:
        """Register a token of a service account, bound to a pod if one is given."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        extra = (
            {"authentication.kubernetes.io/pod-name": [pod], "authentication.kubernetes.io/pod-uid": [f"uid-of-{pod}"]}
            if pod
            else {}
        )
        self.by_value[token] = Token(
            User(f"system:serviceaccount:{namespace}:{name}", groups, f"uid-of-{name}", extra), (audience,)
        )
        return self.by_value[token]

    def request(self, info: RequestInfo, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a TokenRequest: a new token of the service account."""
        spec = body.get("spec", {})
        number = f"token-{len(self.by_value)}"
        name = sign(claims(info.namespace, info.name, aud=spec.get("audiences") or [AUDIENCE], jti=number))
        token = self.service_account(info.namespace, info.name, name)
        self.by_value[name] = token._replace(audiences=tuple(spec.get("audiences") or token.audiences))
        return {
            **body,
            "metadata": {"name": info.name},
            "status": {"token": name, "expirationTimestamp": "2099-01-01T00:00:00Z"},
        }

    def user_of(self, header: str) -> User:
        """Return the user of an Authorization header. Raise StatusError with 401 if the token is unknown or expired."""
        kind, _, text = header.partition(" ")
        token = self.by_value.get(text) if kind.lower() == "bearer" else None
        if token is None or token.expired:
            raise StatusError(401, "Unauthorized")
        return token.user

    def check(self, user: User, info: RequestInfo) -> None:
        """Raise StatusError with 403 if the user lacks permission for a request."""
        resource = info.resource
        attributes = {
            "verb": info.verb,
            "group": resource.group,
            "resource": resource.plural,
            "namespace": info.namespace,
            "name": info.name,
            "subresource": info.subresource,
        }
        if "system:masters" not in user.groups and not self.authorizer(user.name, user.groups, attributes):
            scope = f' in the namespace "{info.namespace}"' if info.namespace else " at the cluster scope"
            resource_name = f"{resource.plural}.{resource.group}".rstrip(".")
            message = f'{resource_name} is forbidden: User "{user.name}" cannot {info.verb} resource "{resource.plural}" in API group "{resource.group}"'
            raise StatusError(403, message + scope)

    def review(self, info: RequestInfo, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a TokenReview or SubjectAccessReview."""
        spec = body.get("spec", {})
        status = self._authenticated(spec) if info.resource.kind == "TokenReview" else self._allowed(spec)
        return {**body, "metadata": {}, "status": status}

    def _authenticated(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        token = self.by_value.get(spec.get("token", ""))
        requested = spec.get("audiences") or ["https://kubernetes.default.svc"]
        if token is None or token.expired:
            return {"error": "[invalid bearer token]", "user": {}}
        audiences = [audience for audience in requested if audience in token.audiences]
        if not audiences:
            return {
                "error": f"[invalid bearer token: it is for {list(token.audiences)}, not for {requested}]",
                "user": {},
            }
        user = {
            "username": token.user.name,
            "uid": token.user.uid,
            "groups": list(token.user.groups),
            "extra": dict(token.user.extra),
        }
        return {"authenticated": True, "user": user, "audiences": audiences}

    def _allowed(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        allowed = self.authorizer(spec.get("user", ""), spec.get("groups") or (), spec.get("resourceAttributes") or {})
        return {"allowed": allowed, **({} if allowed else {"reason": "no RBAC policy matched"})}

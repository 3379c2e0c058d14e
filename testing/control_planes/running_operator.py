"""The operator connected to the API server of the tests, with exactly the permissions that its chart grants."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
from typing import Any

from deploy.chart.chart import installation_folder, read_chart
from deploy.chart.render import render
from deploy.operator.manifest import Installation, render_installation
from pilot.install.installation_labels import MANAGED
from pilot.kube.api_client import RequestTimeouts
from pilot.kube.api_errors import KubeError
from pilot.kube.informer import WatchOptions
from pilot.lib.backoff import Backoff
from pilot.lib.duration import parse_duration
from pilot.operator.istio_operator_resource import KIND
from pilot.operator.operator_process import Operator
from pilot.operator.operator_settings import OperatorSettings
from testing.apiserver.rbac import rbac_authorizer
from testing.apiserver.server import ApiServer
from testing.kube.controllers import Controllers
from testing.kube.installations import Plain, State, excluded_crds, expected_of, state_of
from testing.kube.kube_access import StaticAccess, client_of, until

TOKEN = "token-of-the-operator"
OPERATOR_NAMESPACE = "istio-operator"
SHORT_TIMEOUTS = RequestTimeouts(connect=3.0, response=3.0, watch=60.0)
"""A server that stops while it accepts a connection never answers on it."""
PACE = WatchOptions(Backoff(0.005, 0.05), watch_seconds=30)
_ISTIO_OPERATORS = ("install.istio.io", "istiooperators")
MERGE_PATCH = "application/merge-patch+json"


def operator_objects(watched: str, revision: str = "") -> list[Plain]:
    """Return the objects of the operator's chart."""
    values = {"watchedNamespaces": watched, "revision": revision}
    return render(read_chart(installation_folder() / "charts" / "istio-operator"), values, OPERATOR_NAMESPACE)


class OperatorCluster:
    """An API server with namespaces, and an operator that watches some of them, or all if `watched` is ""."""

    def __init__(self, watched: str, *namespaces: str, revision: str = "") -> None:
        self.server = ApiServer()
        self.watched, self.revision = watched, revision
        for name in (OPERATOR_NAMESPACE, *namespaces):
            self.server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for plain in operator_objects(watched, revision):
            self.server.put(plain)
        self.controllers = Controllers(self.server)
        account = "istio-operator" + (f"-{revision}" if revision else "")
        self.server.tokens.service_account(OPERATOR_NAMESPACE, account, TOKEN)
        self.server.tokens.authorizer = rbac_authorizer(self.server.store)
        self._running: asyncio.Task[None] | None = None
        self.operator: Operator | None = None

    async def __aenter__(self) -> OperatorCluster:
        await self.server.start()
        self.user = client_of(self.server, SHORT_TIMEOUTS)
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self.user.close()
        await self.server.stop()

    async def start(self, lease: str = "") -> None:
        settings = OperatorSettings()
        watch = dataclasses.replace(
            settings.watch, namespaces=self.watched, revision=self.revision, timeout=parse_duration("300s")
        )
        name = "istio-operator" + (f"-{self.revision}" if self.revision else "")
        replica = dataclasses.replace(
            settings.replica,
            address="127.0.0.1:0",
            pod_namespace=OPERATOR_NAMESPACE,
            deployment=name,
            lease_namespace=lease,
        )
        self.operator = Operator(
            dataclasses.replace(settings, watch=watch, replica=replica),
            StaticAccess(self.server, TOKEN),
            PACE,
            0.005,
            SHORT_TIMEOUTS,
        )
        self._running = asyncio.create_task(self.operator.run())

    async def stop(self) -> None:
        """Stop the operator as SIGTERM does."""
        if self.operator is not None and self._running is not None:
            self.operator.stop()
            await self._running
        self.operator = self._running = None

    # -- IstioOperators ------------------------------------------------------------------------------------------------

    async def write(self, namespace: str, name: str, spec: Any, **metadata: Any) -> None:
        """Create or update an IstioOperator as a user does, and retry until it succeeds."""
        body = {
            "apiVersion": KIND.api_version,
            "kind": KIND.name,
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "spec": spec,
        }
        path = f"/apis/{KIND.api_version}/namespaces/{namespace}/istiooperators"
        while True:
            current = self.resource(namespace, name)
            try:
                if current is None:
                    await self.user.call("POST", path, body=json.dumps(body).encode())
                else:
                    updated = {**current, "spec": spec, "metadata": {**current["metadata"], **metadata}}
                    await self.user.call("PUT", f"{path}/{name}", body=json.dumps(updated).encode())
                return
            except KubeError:
                await asyncio.sleep(0.01)

    async def remove(self, namespace: str, name: str) -> None:
        """Delete an IstioOperator as a user does, and retry until it succeeds."""
        path = f"/apis/{KIND.api_version}/namespaces/{namespace}/istiooperators/{name}"
        while self.resource(namespace, name) is not None:
            try:
                await self.user.call("DELETE", path)
                return
            except KubeError:
                await asyncio.sleep(0.01)

    def resource(self, namespace: str, name: str) -> Plain | None:
        return self.server.get(*_ISTIO_OPERATORS, namespace, name)

    def status(self, namespace: str, name: str) -> Plain:
        """Return the status of an IstioOperator."""
        content: Plain = (self.resource(namespace, name) or {}).get("status") or {}
        return content

    async def wait_until_healthy(self, namespace: str, name: str) -> None:
        """Wait until an IstioOperator is healthy."""
        await self.wait_for_status(namespace, name, "HEALTHY")

    async def wait_for_status(self, namespace: str, name: str, status: str) -> None:
        """Wait until an IstioOperator has a status."""
        try:
            await until(lambda: self.status(namespace, name).get("status") == status, 60)
        except TimeoutError:
            raise AssertionError(f"{namespace}/{name} is not {status}: {self.status(namespace, name)}") from None

    def installed(self) -> State:
        """Return the objects that the operator has installed."""
        return {
            name: plain
            for name, plain in state_of(self.server).items()
            if MANAGED in (plain["metadata"].get("labels") or {})
        }

    async def patch(self, plain: Plain, patch: Plain) -> None:
        """Patch an installed object behind the operator's back."""
        await self.user.call("PATCH", self._path(plain), body=json.dumps(patch).encode(), content_type=MERGE_PATCH)

    async def delete(self, plain: Plain) -> None:
        """Delete an installed object behind the operator's back."""
        await self.user.call("DELETE", self._path(plain))

    def _path(self, plain: Plain) -> str:
        resource = self.server.resources.of_object(plain)
        return f"{resource.path(plain['metadata'].get('namespace', ''), plain['apiVersion'].rpartition('/')[2])}/{plain['metadata']['name']}"


def render_spec(spec: Plain) -> Installation:
    """Return the installation of a specification."""
    return render_installation({"metadata": {"name": "any"}, "spec": copy.deepcopy(spec)}, lambda _: None)


def expected(namespace: str, name: str, spec: Plain) -> State:
    """Return the objects that an IstioOperator installs."""
    return expected_of(render_spec(spec), name, namespace, str(spec.get("revision") or "default"))


def with_few_crds(spec: Plain) -> Plain:
    """Return a specification that excludes most CustomResourceDefinitions."""
    values = {**spec.get("values", {}), "base": {"excludedCRDs": excluded_crds().split(",")}}
    return {**spec, "values": values}

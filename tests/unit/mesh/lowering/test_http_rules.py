"""Order of HTTP rules."""

from __future__ import annotations

from pilot.config.networking.virtual_service import HTTPMatchRequest, HTTPRoute, StringMatch
from pilot.mesh.lowering.gateway_api.http_rules import by_specificity


def test_rules_are_ordered_by_specificity() -> None:
    def rule(**fields: object) -> HTTPRoute:
        return HTTPRoute(match=(HTTPMatchRequest(**fields),))  # type: ignore[arg-type]

    present = StringMatch(regex=".*")
    ordered = [
        rule(uri=StringMatch(exact="/long")),
        rule(uri=StringMatch(exact="/a"), query_params={"q": present}),
        rule(uri=StringMatch(exact="/a")),
        rule(uri=StringMatch(prefix="/longer")),
        rule(uri=StringMatch(prefix="/b"), method=StringMatch(exact="GET")),
        rule(uri=StringMatch(prefix="/b"), headers={"h": present, "i": present}),
        rule(uri=StringMatch(prefix="/b"), headers={"h": present}, query_params={"q": present}),
        rule(uri=StringMatch(prefix="/b"), headers={"h": present}),
        rule(uri=StringMatch(prefix="/b"), query_params={"q": present, "r": present}),
        rule(uri=StringMatch(prefix="/b")),
        rule(uri=StringMatch(regex="/very.*long")),
        rule(uri=StringMatch(regex="/.*")),
        rule(method=StringMatch(exact="GET")),
        rule(),
        HTTPRoute(),
    ]
    keys = [by_specificity(each) for each in ordered]
    assert keys == sorted(set(keys))
    assert by_specificity(ordered[4]) == (0, -2, -2, 0, 0, 0)
    assert by_specificity(ordered[12]) == (0, 1, 0, 0, 0, 0)
    assert by_specificity(ordered[-1]) == (1,)

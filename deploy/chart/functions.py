"""What Helm adds to Sprig's functions. https://helm.sh/docs/chart_template_guide/function_list/"""

from __future__ import annotations

from typing import Any

from pilot.ingest.documents import SyntaxFault, read_documents
from webhook.template import go_json, go_yaml
from webhook.template.function import Function, takes
from webhook.template.functions import SPRIG


def _read(text: str) -> Any:
    documents = read_documents(text.encode(), "")
    return go_json.floats(documents[0].plain) if documents else None


def from_yaml(text: str) -> dict[str, Any]:
    """Returns the mapping of a YAML text; where it is none, a mapping with the key Error, as Helm does."""
    try:
        found = _read(text)
    except SyntaxFault as fault:
        return {"Error": f"error converting YAML to JSON: {fault}"}
    if found is None:
        return {}
    return (
        found
        if isinstance(found, dict)
        else {"Error": "json: cannot unmarshal into a value of type map[string]interface {}"}
    )


def from_yaml_list(text: str) -> list[Any]:
    """Returns the list of a YAML text; where it is none, a list of what is wrong, as Helm does."""
    try:
        found = _read(text)
    except SyntaxFault as fault:
        return [f"error converting YAML to JSON: {fault}"]
    if found is None:
        return []
    return found if isinstance(found, list) else ["json: cannot unmarshal into a value of type []interface {}"]


def to_yaml(value: Any) -> str:
    """Returns a value as YAML, without the line break at its end."""
    return go_yaml.dump(value).removesuffix("\n")


def required(message: str, value: Any) -> Any:
    """Returns a value. ValueError with the chart's own message where it is nil or the empty text."""
    if value is None or value == "":
        raise ValueError(message)
    return value


def nothing(*_: str) -> dict[str, Any]:
    """Returns what `lookup` finds where there is no cluster: nothing."""
    return {}


FUNCTIONS: dict[str, Function] = {
    **{name: function for name, function in SPRIG.items() if name not in ("env", "expandenv")},
    "toYaml": takes("any", to_yaml),
    "fromYaml": takes("string", from_yaml),
    "fromYamlArray": takes("string", from_yaml_list),
    "required": takes("string any", required),
    "lookup": takes("string string string string", nothing),
}

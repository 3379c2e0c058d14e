"""The functions of Sprig, which templates of Istio and of charts call. https://masterminds.github.io/sprig/"""

from webhook.template.builtins import BUILTINS
from webhook.template.function import Function
from webhook.template.functions.dates import DATES
from webhook.template.functions.defaults import DEFAULTS
from webhook.template.functions.dicts import DICTS
from webhook.template.functions.encoding import ENCODING
from webhook.template.functions.lists import LISTS
from webhook.template.functions.numbers import NUMBERS
from webhook.template.functions.paths import PATHS
from webhook.template.functions.regexes import REGEXES
from webhook.template.functions.secrets import SECRETS
from webhook.template.functions.semver import SEMVER
from webhook.template.functions.text import TEXT
from webhook.template.functions.urls import URLS
from webhook.template.functions.words import WORDS

_GROUPS = (
    BUILTINS,
    TEXT,
    WORDS,
    LISTS,
    DICTS,
    NUMBERS,
    DEFAULTS,
    ENCODING,
    PATHS,
    REGEXES,
    SEMVER,
    URLS,
    DATES,
    SECRETS,
)
SPRIG: dict[str, Function] = {name: function for group in _GROUPS for name, function in group.items()}

__all__ = ["SPRIG"]

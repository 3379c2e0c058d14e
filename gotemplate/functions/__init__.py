"""The functions of Sprig and the built-in functions. https://masterminds.github.io/sprig/"""

from gotemplate.builtins import BUILTINS
from gotemplate.function import Function
from gotemplate.functions.dates import DATES
from gotemplate.functions.defaults import DEFAULTS
from gotemplate.functions.dicts import DICTS
from gotemplate.functions.encoding import ENCODING
from gotemplate.functions.lists import LISTS
from gotemplate.functions.numbers import NUMBERS
from gotemplate.functions.paths import PATHS
from gotemplate.functions.regexes import REGEXES
from gotemplate.functions.secrets import SECRETS
from gotemplate.functions.semver import SEMVER
from gotemplate.functions.text import TEXT
from gotemplate.functions.urls import URLS
from gotemplate.functions.words import WORDS

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

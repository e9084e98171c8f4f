"""The templates of pages, and how numbers are written in them."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from meshproof.comparison.differences import SIGNS as CHANGES
from meshproof.html.units import describe_bytes, describe_change, describe_number, exact_bytes
from meshproof.report.document import SIGNS, STATUSES


@cache
def templates() -> Environment:
    """Escapes what it inserts; an undefined name is an error."""
    found = Environment(
        loader=PackageLoader("meshproof", "html/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "bytes": describe_bytes,
        "exact_bytes": exact_bytes,
        "number": describe_number,
        "change": describe_change,
    }
    found.globals |= {"SIGNS": SIGNS, "STATUSES": STATUSES, "CHANGES": CHANGES}
    return found

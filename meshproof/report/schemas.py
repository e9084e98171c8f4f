"""JSON documents and their schemas, which are beside this file. Needs no JAX."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NoReturn

import jsonschema_rs


def read_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a kind of document: ``report``, ``run`` or ``plan``."""
    text = files("meshproof.report").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


@cache
def _validator(name: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(read_schema(name))


def flaw(document: Any, name: str) -> str | None:
    """The first violation of the schema in a document, with its place; ``None`` if it is valid."""
    try:
        error = next(_validator(name).iter_errors(document), None)
    except (ValueError, RecursionError) as unreadable:
        return str(unreadable)
    return None if error is None else f"at {_place(error.instance_path)}: {error.message[:200]}"


def parse_json(text: str) -> Any:
    """The data of a text. Raises ``RecursionError`` or ``ValueError``, also for NaN and infinity, which JSON lacks."""
    return json.loads(text, parse_constant=_refuse)


def _place(path: list[str | int]) -> str:
    words = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(words).removeprefix(".") or "its top"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")

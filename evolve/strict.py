"""Read the YAML files that a user writes: every mistake is named with its file, line, key and the nearest known name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from evolve.errors import ProblemError, nearest


class Strict(BaseModel):
    """A mapping of a problem folder: unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


S = TypeVar("S", bound=Strict)


def read_text(path: Path) -> str:
    """Return a file's text.

    Raises:
        ProblemError: it is missing, or not UTF-8.
    """
    if not path.is_file():
        raise ProblemError(
            f"{path} is missing. A problem folder has problem.yaml, initial_program.py and tests.jsonl, or "
            "initial_program.py and evaluator.py."
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path} is not UTF-8 text ({error}).") from None
    except OSError as error:
        raise ProblemError(f"{path} cannot be read: {error}.") from None


def load_yaml(path: Path, model: type[S]) -> S:
    """Return a YAML file as a model.

    Raises:
        ProblemError: it is missing or wrong.
    """
    text = read_text(path)
    content = parse_yaml(path, text)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ProblemError(explain(path, error, model, yaml.compose(text, Loader=yaml.SafeLoader))) from None


def parse_yaml(path: Path, text: str) -> dict[str, Any]:
    """Return YAML text as a mapping.

    Raises:
        ProblemError: it is no YAML, or no mapping.
    """
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ProblemError(f"{path} is not YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ProblemError(f"{path} must hold keys such as `name:`, not a {type(content).__name__}.")
    return content


def explain(path: Path, error: ValidationError, model: type[BaseModel], node: yaml.Node | None) -> str:
    """Return the first error of a validation as text with file, line, key and the nearest valid name."""
    first = error.errors()[0]
    keys = [part for part in first["loc"] if isinstance(part, (str, int))]
    where = f"{path}, line {_line(node, keys)}" if node is not None else str(path)
    dotted = ".".join(map(str, keys))
    more = f" ({error.error_count() - 1} more like it)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        owner = _model_at(model, keys[:-1])
        known = list(owner.model_fields)
        hint = nearest(str(keys[-1]), known)
        return f"{where}: unknown key {dotted!r}{hint} Known keys: {', '.join(known)}.{more}"
    if first["type"] == "missing":
        return f"{where}: the key {dotted!r} is missing.{more}"
    came = json.dumps(first["input"], default=str)[:80]
    return f"{where}: {dotted!r}: {first['msg'].removeprefix('Value error, ')}; came {came}.{more}"


def _model_at(model: type[BaseModel], keys: Sequence[str | int]) -> type[BaseModel]:
    """Return the model of a nested key."""
    for key in keys:
        kinds = [model.model_fields[str(key)].annotation] if str(key) in model.model_fields else []
        kinds += list(getattr(kinds[0], "__args__", ())) if kinds else []
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        model = inner[0] if inner else model
    return model


def _line(node: yaml.Node | None, keys: Sequence[str | int]) -> int:
    """Return the line of the deepest of the nested keys that the file holds."""
    line = 1
    for key in keys:
        if not isinstance(node, yaml.MappingNode):
            break
        for name, value in node.value:
            if name.value == key:
                line, node = name.start_mark.line + 1, value
                break
        else:
            break
    return line

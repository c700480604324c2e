"""Read the YAML files that a user writes: every mistake is named with its file, line, key and the nearest known name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from evolve.errors import ProblemError, nearest
from evolve.folder import read_text
from sandbox.image.names import debian_packages

MOST_YAML_MB = 1
MOST_NODES = 100_000


class Strict(BaseModel):
    """A mapping of a problem folder: unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _debian(names: list[str]) -> list[str]:
    return list(debian_packages(names))


Debian = Annotated[list[str], AfterValidator(_debian)]
"""Names of Debian packages."""

S = TypeVar("S", bound=Strict)


def load_yaml(path: Path, model: type[S], folder: Path | None = None) -> S:
    """Return a YAML file as a model. See `read_text`.

    Raises:
        ProblemError: it is missing or wrong.
    """
    text = read_text(path, folder, MOST_YAML_MB)
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
    if len(text) > MOST_YAML_MB * (1 << 20):
        raise ProblemError(f"{path} has {len(text)} characters; at most {MOST_YAML_MB} MB of YAML are read.")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None and _size(node, {}) > MOST_NODES:
            raise ProblemError(f"{path}: its aliases stand for more than {MOST_NODES} values. Write out what they repeat.")
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ProblemError(f"{path} is not YAML: {error}") from None
    if content is None:
        return {}
    try:
        json.dumps(content, ensure_ascii=False, default=str).encode("utf-8")
    except UnicodeEncodeError:
        raise ProblemError(f"{path} holds half of a surrogate pair (such as \\ud800), which is no text.") from None
    except (ValueError, TypeError, RecursionError):
        pass  # keys that are no texts, told by the caller
    if not isinstance(content, dict):
        raise ProblemError(f"{path} must hold keys such as `name:`, not a {type(content).__name__}.")
    return content


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node stands for, those behind aliases counted each time.

    Raises:
        ValueError: an alias stands for something that holds it.
    """
    if id(node) not in known:
        known[id(node)] = -1
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            parts = list(node.value)
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    if known[id(node)] < 0:
        raise ValueError("an alias stands for what holds it")
    return known[id(node)]


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

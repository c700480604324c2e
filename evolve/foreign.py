"""OpenEvolve's `config.yaml`: what of it is honoured here, and what is ignored, key by key.

The facts about OpenEvolve were read in its version 0.4.0: its loader drops unknown keys without a word, and fails on null
and on a fraction where it expects a whole number. Here null means the default, fractions are taken, and every key without
an effect is named.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import re2

from evolve.edits import pattern_of
from evolve.errors import ProblemError
from evolve.folder import must_lie_in, read_text
from evolve.strict import MOST_YAML_MB, parse_yaml

if TYPE_CHECKING:
    from openevolve.config import PromptConfig

KEPT = {
    "": (
        "max_iterations random_seed language diff_based_evolution diff_pattern enforce_evolve_blocks "
        "max_code_length early_stopping_patience early_stopping_metric convergence_threshold"
    ),
    "llm": (
        "api_base api_key models primary_model primary_model_weight secondary_model secondary_model_weight temperature "
        "top_p max_tokens timeout retries"
    ),
    "prompt": (
        "system_message template_dir num_top_programs num_diverse_programs include_artifacts max_artifact_bytes "
        "use_template_stochasticity template_variations artifact_security_filter suggest_simplification_after_chars "
        "include_changes_under_chars concise_implementation_max_lines comprehensive_implementation_min_lines "
        "diff_summary_max_line_len diff_summary_max_lines"
    ),
    "database": (
        "population_size archive_size num_islands elite_selection_ratio exploration_ratio exploitation_ratio "
        "feature_dimensions feature_bins migration_interval migration_rate"
    ),
    "evaluator": (
        "timeout cascade_evaluation cascade_thresholds parallel_evaluations memory_limit_mb cpu_limit enable_artifacts"
    ),
}
"""What has an effect here, by section."""

HONOURED = {f"{section}.{key}" if section else key for section, keys in KEPT.items() for key in keys.split()}
MODEL_KEYS = {"name", "weight", "api_base", "api_key"}
"""Of an entry of `llm.models`."""

NUMBERS = (
    "max_iterations max_code_length llm.temperature llm.top_p llm.max_tokens llm.timeout llm.retries "
    "prompt.num_top_programs prompt.num_diverse_programs prompt.max_artifact_bytes database.population_size "
    "database.archive_size database.num_islands database.elite_selection_ratio database.exploration_ratio "
    "database.exploitation_ratio database.migration_interval database.migration_rate evaluator.timeout "
    "evaluator.parallel_evaluations evaluator.memory_limit_mb evaluator.cpu_limit early_stopping_patience "
    "convergence_threshold"
)

SIGNED = ("early_stopping_patience", "convergence_threshold")
"""Numbers that may be negative."""

SHORT = 40
_DEFAULT_PATTERN = r"<<<<<<< SEARCH\n(.*?)=======\n(.*?)>>>>>>> REPLACE"


@dataclass(frozen=True, slots=True)
class ForeignConfig:
    """A read config.

    Attributes:
        path: the file, or None where there is none and every value is OpenEvolve's default.
        given: values of the honoured keys by dotted name; no keys of services.
        ignored: dotted names of all other keys that the file holds.
        api_key: of the config as it stands there (see `keys.py`), for requests only; never stored, shown or logged.
    """

    path: Path | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    api_key: str | None = field(default=None, repr=False)

    def get(self, key: str) -> Any:
        """Return the value of an honoured key; OpenEvolve's default where the file gives none.

        Raises:
            ProblemError: the value can't be taken.
        """
        if key in self.given:
            return self.given[key]
        section, _, name = key.rpartition(".")
        return _defaults()[section][name]

    def number(self, key: str, least: float = 0.0) -> float:
        """Return a value that must be a number.

        Raises:
            ProblemError: it is none, or less than `least`.
        """
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
            wanted = f" of at least {least:g}" if math.isfinite(least) else ""
            raise ProblemError(f"{self.path}: {key} must be a number{wanted}; came {str(value)[:SHORT]!r}.")
        return float(value)

    def whole(self, key: str, least: float = 0) -> int:
        """Return a value that must be a number, rounded."""
        return round(self.number(key, least))

    def flag(self, key: str) -> bool:
        """Return a value that must be true or false."""
        value = self.get(key)
        if not isinstance(value, bool):
            raise ProblemError(f"{self.path}: {key} must be true or false; came {str(value)[:SHORT]!r}.")
        return value

    def words(self, key: str) -> list[Any]:
        """Return a value that must be a list."""
        value = self.get(key)
        if not isinstance(value, list):
            raise ProblemError(f"{self.path}: {key} must be a list; came {str(value)[:SHORT]!r}.")
        return value

    @property
    def statement(self) -> str:
        """The task in words, or an empty string."""
        value = self.given.get("prompt.system_message")
        return value if isinstance(value, str) else ""

    @property
    def pattern(self) -> str | None:
        """A `diff_pattern` of the user's own."""
        value = self.given.get("diff_pattern")
        if not isinstance(value, str) or value == _DEFAULT_PATTERN:
            return None
        try:
            groups = pattern_of(value).groups
        except re2.error as error:
            raise ProblemError(
                f"{self.path}: diff_pattern is no regular expression of RE2, which has no look-around and no back "
                f"references: {error}."
            ) from None
        if groups != 2:
            raise ProblemError(
                f"{self.path}: diff_pattern must have two groups, what to find and what to put; it has {groups}."
            )
        return value

    @property
    def models(self) -> list[tuple[str, float, str | None]]:
        """Name, weight and API base of the models that the file names; empty when it names no service for them."""
        rows = self.given.get("llm.models") or []
        found = [(row["name"], float(row.get("weight") or 1.0), row.get("api_base")) for row in rows if row.get("name")]
        if not found:
            for name, weight in (("primary_model", 1.0), ("secondary_model", 0.2)):
                model = self.given.get(f"llm.{name}")
                share = self.given.get(f"llm.{name}_weight")
                if model and (share is None or share > 0):
                    found.append((str(model), weight if share is None else float(share), None))
        base = self.given.get("llm.api_base")
        return [(name, weight, own or base) for name, weight, own in found if own or base]

    def prompt_config(self) -> PromptConfig:
        """Return OpenEvolve's own configuration of prompts, for its templates."""
        from openevolve.config import PromptConfig

        values = {key.removeprefix("prompt."): value for key, value in self.given.items() if key.startswith("prompt.")}
        if values.get("template_dir") and self.path is not None:
            place = self.path.parent / values["template_dir"]
            must_lie_in(self.path.parent, place)
            values["template_dir"] = str(place.resolve())
        return PromptConfig(**values)


def read_config(path: Path | None, folder: Path | None = None) -> ForeignConfig:
    """Read a config, which must lie in `folder` where one is given.

    Raises:
        ProblemError: it is not a YAML mapping, or a value can't be taken.
    """
    if path is None:
        return ForeignConfig()
    given: dict[str, Any] = {}
    ignored: list[str] = []
    api_key: str | None = None
    for key, value in _leaves(parse_yaml(path, read_text(path, folder, MOST_YAML_MB))):
        if value is None:
            continue
        if key in ("llm.api_key", "llm.models") or key in HONOURED:
            if key == "llm.api_key":
                api_key = api_key or str(value)
            elif key == "llm.models":
                given[key], names, own = _models(path, value)
                ignored += names
                api_key = api_key or own
            else:
                given[key] = value
        else:
            ignored.append(key)
    config = ForeignConfig(path, given, tuple(sorted(ignored)), api_key)
    _check(config)
    return config


def _check(config: ForeignConfig) -> None:
    """Complain now about values that would fail later."""
    for key in NUMBERS.split():
        if key in config.given:
            config.number(key, -math.inf if key in SIGNED else 0.0)
    for key in ("diff_based_evolution", "prompt.include_artifacts", "evaluator.cascade_evaluation"):
        config.flag(key)
    config.words("database.feature_dimensions")
    if not all(isinstance(value, (int, float)) for value in config.words("evaluator.cascade_thresholds")):
        raise ProblemError(f"{config.path}: evaluator.cascade_thresholds must be numbers.")
    _ = config.pattern


def _leaves(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield dotted names and values: sections that OpenEvolve knows key by key, everything else whole."""
    for key, value in content.items():
        if key in KEPT and key and isinstance(value, dict):
            for name, inner in value.items():
                yield f"{key}.{name}", inner
        else:
            yield str(key), value


def _models(path: Path, rows: Any) -> tuple[list[dict[str, Any]], list[str], str | None]:
    """Return the honoured part of `llm.models`, the names of what is ignored in it, and a key."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ProblemError(f"{path}: llm.models must be a list of mappings with a name and a weight.")
    kept = [{key: row[key] for key in ("name", "weight", "api_base") if row.get(key) is not None} for row in rows]
    ignored = sorted({f"llm.models[].{key}" for row in rows for key in row if key not in MODEL_KEYS})
    own = next((str(row["api_key"]) for row in rows if row.get("api_key")), None)
    return kept, ignored, own


_DEFAULTS: dict[str, dict[str, Any]] = {}


def _defaults() -> dict[str, dict[str, Any]]:
    """Return OpenEvolve's own defaults by section."""
    if not _DEFAULTS:
        from openevolve import config as theirs

        sections = {
            "": theirs.Config,
            "llm": theirs.LLMConfig,
            "prompt": theirs.PromptConfig,
            "database": theirs.DatabaseConfig,
            "evaluator": theirs.EvaluatorConfig,
        }
        for name, section in sections.items():
            _DEFAULTS[name] = {one.name: _default(one) for one in dataclasses.fields(typing.cast(Any, section))}
    return _DEFAULTS


def _default(one: dataclasses.Field[Any]) -> Any:
    if one.default_factory is not dataclasses.MISSING:
        return None if dataclasses.is_dataclass(one.default_factory) else one.default_factory()
    return one.default

"""Prompts for problems with an evaluator: the parent with its metrics and the evaluator's artifacts, and other programs.

With a `template_dir` or `template_variations` of the user's, the text is made by OpenEvolve's own `PromptSampler`, so that
every placeholder works; what asks for m answers is added at its end.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Mapping
from typing import Any

from evolve import templates
from evolve.answers import tree
from evolve.completion import Message
from evolve.evaluated import EvaluatedProblem
from evolve.frame import Frame
from evolve.population import Member
from evolve.prompt import View, ask, block, cut, programs

MAX_ARTIFACTS = 6000
"""Characters of all artifacts in a prompt of ours, less where the config says so."""


class MetricsPrompter:
    """Shows metrics and artifacts.

    Args:
        problem: statement and config.
    """

    def __init__(self, problem: EvaluatedProblem):
        self._problem = problem
        self._contract = _contract(problem)
        config = problem.config
        wanted = config.flag("prompt.include_artifacts") and config.flag("evaluator.enable_artifacts")
        self._most = config.whole("prompt.max_artifact_bytes") if wanted else 0
        custom = config.given.get("prompt.template_dir") or config.given.get("prompt.template_variations")
        self._templates = OpenEvolveTemplates(problem) if custom else None

    def build(self, view: View) -> list[Message]:
        """See `Prompter.build`."""
        language = self._problem.language
        question = ask(view, language, self._contract, templates.RAISE_METRICS)
        if self._templates is not None:
            system, user = self._templates.build(view, self._shown(view.score.artifacts))
            if view.m > 1:
                user += f"\n\n# Your answers\n{question}"
            return [{"role": "system", "content": system}, {"role": "user", "content": user}]
        sources = programs(view, language)
        parts = [f"# Current program\n{block(language, sources[view.parent.id])}", self._metrics(view)]
        shown = self._shown(view.score.artifacts)
        if shown:
            parts.append("# What its evaluation told\n" + "\n".join(f"## {name}\n{text}" for name, text in shown.items()))
        for title, members in (("Best programs so far", view.fittest), ("Other programs", view.others)):
            if members:
                texts = [
                    f"Score {member.fitness:.4g}:\n{block(language, sources[member.id])}"
                    for member in members
                    if member.id in sources
                ]
                parts.append(f"# {title}\n" + "\n".join(texts))
        parts.append(f"# Your answer\n{question}")
        system = self._problem.statement.strip() or templates.METRICS_SYSTEM.format(language=language.capitalize())
        return [{"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(parts)}]

    def _metrics(self, view: View) -> str:
        lines = [f"- {name}: {_number(value)}" for name, value in view.score.metrics.items()]
        return f"# Its metrics (score {_number(view.parent.fitness)}, higher is better)\n" + "\n".join(lines)

    def _shown(self, artifacts: Mapping[str, str]) -> dict[str, str]:
        """Return artifacts, each cut so that together they stay within the limit."""
        most = min(self._most, MAX_ARTIFACTS) // max(1, len(artifacts))
        if most <= 0:
            return {}
        return {name: text if len(text) <= most else text[:most] + "..." for name, text in artifacts.items()}


class OpenEvolveTemplates:
    """OpenEvolve's templates and placeholders, the user's over its own.

    Args:
        problem: whose config names them.
    """

    def __init__(self, problem: EvaluatedProblem):
        from openevolve.prompt.sampler import PromptSampler

        self._problem = problem
        self._sampler = PromptSampler(problem.config.prompt_config())

    def build(self, view: View, artifacts: Mapping[str, str]) -> tuple[str, str]:
        """Return system and user message. The sampler's choices come from Python's generator, seeded by the prompt."""
        before = random.getstate()
        random.seed(view.seed)
        try:
            built = self._sampler.build_prompt(
                current_program=view.parent.source,
                parent_program=view.parent.source,
                program_metrics=dict(view.score.metrics),
                previous_programs=[_given(member) for member in view.fittest],
                top_programs=[_given(member) for member in view.fittest],
                inspirations=[_given(member) for member in view.others],
                language=self._problem.language,
                evolution_round=view.generation,
                diff_based_evolution=view.as_edits,
                program_artifacts=dict(artifacts),
                feature_dimensions=list(self._problem.features),
            )
        finally:
            random.setstate(before)
        return built["system"], built["user"]


def _contract(problem: EvaluatedProblem) -> str:
    """Return what must stay: the signatures of the initial program's functions that may change, where they are known."""
    names = []
    for part in Frame.of(problem.initial).free:
        module = tree("\n".join(part)) if problem.language == "python" else None
        for node in module.body if module is not None else ():
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                names.append(f"`def {node.name}({ast.unparse(node.args)})`")
    if not names:
        return templates.KEEP_INTERFACE
    return templates.KEEP_SIGNATURES.format(names=", ".join(names))


def _given(member: Member) -> dict[str, Any]:
    """Return a program as the sampler takes it."""
    return {"id": str(member.id), "code": member.source, "metrics": dict(member.metrics), "metadata": {}}


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else cut(str(value))

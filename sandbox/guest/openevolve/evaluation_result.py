"""The result type that an OpenEvolve evaluator may return instead of a dict of metrics (openevolve 0.4.0)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class EvaluationResult:
    """Metrics by name, and artifacts (text or bytes) that may be shown in prompts."""

    metrics: dict[str, float]
    artifacts: dict[str, str | bytes] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, metrics: dict[str, float]) -> EvaluationResult:
        """Return a result without artifacts."""
        return cls(metrics=metrics)

    def to_dict(self) -> dict[str, float]:
        """Return the metrics."""
        return self.metrics

    def has_artifacts(self) -> bool:
        """Return whether there are artifacts."""
        return bool(self.artifacts)

    def get_artifact_keys(self) -> list[str]:
        """Return the artifacts' names."""
        return list(self.artifacts)

    def get_artifact_size(self, key: str) -> int:
        """Return an artifact's size in bytes; 0 when there is none of that name."""
        value = self.artifacts.get(key, "")
        return len(value.encode() if isinstance(value, str) else value)

    def get_total_artifact_size(self) -> int:
        """Return the size of all artifacts in bytes."""
        return sum(map(self.get_artifact_size, self.artifacts))

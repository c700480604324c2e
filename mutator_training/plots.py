"""The plots of a comparison's page: from figures to PNG images, with a caption that says what is counted."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mutator_training.evidence import Evidence

COLOURS = ("#4d4d4d", "#d1495b", "#00798c", "#edae49", "#7b2cbf", "#2e933c", "#8d6b4f", "#3066be")


@dataclass(frozen=True, slots=True)
class Plot:
    """One image.

    Attributes:
        title: for people.
        png: the image.
        caption: what it counts.
    """

    title: str
    png: bytes
    caption: str


def plots(found: Mapping[str, Any], evidence: Evidence) -> list[Plot]:
    """Return the plots that the figures allow."""
    made = [
        *_sampled(found, evidence),
        *_over_training(found, evidence),
        *_searched(found),
        *([_scatter(evidence)] if evidence.samples else []),
    ]
    return [one for one in made if one is not None]


def _colour(found: Mapping[str, Any], arm: str) -> str:
    return COLOURS[list(found["arms"]).index(arm) % len(COLOURS)]


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _panels(count: int) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(5.2 * count, 3.8), dpi=110, layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, count)))


def _band(axes: Any, xs: Sequence[float], bands: Sequence[Sequence[float]], colour: str, label: str) -> None:
    mean, low, high = np.array(bands).T
    axes.plot(xs, mean, color=colour, label=label, marker="o" if len(xs) < 20 else None, markersize=3)
    axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)


def _finish(axes: Any, title: str, across: str, up: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(across)
    if across == "optimizer step":
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(up)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)


def _sampled(found: Mapping[str, Any], evidence: Evidence) -> list[Plot]:
    """Return pass@k and best@k, per answer and per completion."""
    made = []
    curves = found["curves"]
    for measure, unit in (("pass", "answer"), ("best", "answer"), ("pass", "completion")):
        sides = list(dict.fromkeys(one["side"] for one in curves))
        if not sides:
            return []
        figure, panels = _panels(len(sides))
        for axes, side in zip(panels, sides, strict=True):
            for one in curves:
                if (one["measure"], one["unit"], one["side"]) == (measure, unit, side):
                    _band(axes, one["ks"], one["bands"], _colour(found, one["arm"]), one["arm"])
            axes.set_xscale("log", base=2)
            _finish(axes, f"{side} tests", f"k, {unit}s", f"{measure}@k")
        problems = len(next(iter(evidence.samples.values()))[0].problems)
        answers = next(iter(evidence.samples.values()))[0].keys[0].size
        what = {
            "pass": "the chance that at least one of k passes every test (unbiased, Chen et al. 2021); an answer "
            "passes the hidden "
            "tests when it passes the visible ones as well",
            "best": "the mean of the best share of tests passed among k (over all subsets of k)",
        }[measure]
        each = (
            ""
            if unit == "answer"
            else " A completion of an arm with m answers is worth its best answer and costs m of them."
        )
        made.append(
            Plot(
                f"{measure}@k per {unit}",
                _png(figure),
                f"{what[0].upper()}{what[1:]}; mean over {problems} held-out problems and {found['seeds']} seeds, {answers} "
                f"answers sampled for each; bands: 95 % intervals over problems and seeds.{each}",
            )
        )
    return made


def _over_training(found: Mapping[str, Any], evidence: Evidence) -> list[Plot]:
    """Return pass@k, diversity, and drift over training steps."""
    curves = {arm: one["curve"] for arm, one in found["training"].items() if len(one["curve"]) > 1}
    still = {arm: one["curve"][0] for arm, one in found["training"].items() if len(one["curve"]) == 1}
    made = []
    if curves:
        names = [name for name in next(iter(curves.values()))[0] if name.startswith("pass@")]
        chosen = [names[0], names[-1]] if len(names) > 1 else names
        steps = max(row["step"] for rows in curves.values() for row in rows)
        figure, panels = _panels(len(chosen))
        for axes, name in zip(panels, chosen, strict=True):
            for arm, rows in curves.items():
                _band(axes, [row["step"] for row in rows], [row[name] for row in rows], _colour(found, arm), arm)
            for arm, row in still.items():
                axes.axhline(row[name][0], color=_colour(found, arm), linestyle=":", label=arm)
            _finish(axes, f"{name} on visible tests", "optimizer step", name)
        problems = next(iter(evidence.samples.values()))[0].problems
        made.append(
            Plot(
                "pass@k over training",
                _png(figure),
                f"Evaluated every {_every(curves)} of {steps} optimizer steps on {len(problems)} held-out "
                "problems, per answer; mean "
                f"over problems and {found['seeds']} seeds, 95 % bands; dotted: not trained.",
            )
        )
        drawn = (("distinct", "different programs, share of answers"), ("kl", "KL to the base, nats per token"))
        made.append(_lines(found, curves, still, drawn, "Diversity and drift over training", (
            "Different programs as a share of the answers given to one held-out problem, and the KL divergence of "
            "the policy to the "
            "base; mean over seeds, band from the least to the most."
        )))  # fmt: skip
        gaps = {
            arm: [row | {"gap": [row["visible"][0] - row["hidden"][0]] * 3} for row in rows] for arm, rows in curves.items()
        }
        quiet = {arm: row | {"gap": [row["visible"][0] - row["hidden"][0]] * 3} for arm, row in still.items()}
        drawn = (("hidden", "share of hidden tests passed"), ("gap", "visible minus hidden"))
        made.append(_lines(found, gaps, quiet, drawn, "Hidden tests over training", (
            "Mean share of hidden tests that an answer passes, and how much greater the share of visible ones is: "
            "a gap that widens "
            "is reward exploitation. Mean over problems and seeds; band from the least to the most seed."
        )))  # fmt: skip
    rows_of = {arm: one["steps"] for arm, one in found["training"].items() if one["steps"]}
    if rows_of:
        made.append(_trainer(found, rows_of))
    return made


def _every(curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> int:
    steps = [row["step"] for row in next(iter(curves.values()))]
    return int(steps[1] - steps[0])


def _lines(
    found: Mapping[str, Any],
    curves: Mapping[str, Sequence[Mapping[str, Any]]],
    still: Mapping[str, Mapping[str, Any]],
    drawn: Sequence[tuple[str, str]],
    title: str,
    caption: str,
) -> Plot:
    figure, panels = _panels(len(drawn))
    for axes, (name, label) in zip(panels, drawn, strict=True):
        for arm, rows in curves.items():
            _band(axes, [row["step"] for row in rows], [row[name] for row in rows], _colour(found, arm), arm)
        for arm, row in still.items():
            axes.axhline(row[name][0], color=_colour(found, arm), linestyle=":", label=arm)
        _finish(axes, label, "optimizer step", label)
    return Plot(title, _png(figure), caption)


def _trainer(found: Mapping[str, Any], rows_of: Mapping[str, Sequence[Mapping[str, Any]]]) -> Plot:
    """Return what the trainer saw of its own rollouts."""
    drawn = (
        ("rollouts/set_reward", "set reward of the rollouts"),
        ("rollouts/distinct_answers", "different score vectors, share of answers"),
        ("entropy", "entropy, nats per token"),
    )
    figure, panels = _panels(len(drawn))
    for axes, (name, label) in zip(panels, drawn, strict=True):
        for arm, rows in rows_of.items():
            here = [(row["step"], row[name]) for row in rows if name in row and "step" in row]
            if here:
                steps, values = np.array(here).T
                width = max(1, len(values) // 30)
                smooth = np.convolve(values, np.ones(width) / width, "valid")
                axes.plot(steps[width - 1 :], smooth, color=_colour(found, arm), label=arm)
        _finish(axes, label, "optimizer step", label)
    return Plot(
        "What training saw",
        _png(figure),
        f"Of the rollouts that each step trained on: mean over {found['seeds']} seeds, moving average over a "
        "thirtieth of the "
        "training. The set reward of an arm with one answer is the mean of its vector.",
    )


def _searched(found: Mapping[str, Any]) -> list[Plot]:
    search = found["search"]
    if not search:
        return []
    figure, panels = _panels(3)
    drawn = (
        ("candidates", "solved_by_candidates", "share of problems solved"),
        ("tokens", "solved_by_tokens", "share of problems solved"),
        ("candidates", "best_by_candidates", "best share of visible tests"),
    )
    for axes, (across, name, up) in zip(panels, drawn, strict=True):
        for arm, one in search["arms"].items():
            _band(axes, search[across], one[name], _colour(found, arm), arm)
        _finish(axes, f"{up} against {across}", across, up)
    return [
        Plot(
            "Frozen search on the hardest problems",
            _png(figure),
            f"A search per problem with the mutator as it is, on {len(search['problems'])} problems and "
            f"{found['seeds']} seeds: the "
            "share solved (every visible test passes) and the best score, against scored candidates and against "
            "sampled tokens; 95 % "
            "bands over problems and seeds.",
        )
    ]


def _scatter(evidence: Evidence) -> Plot | None:
    """Return where the answers to one problem lie in the reward space: the one with the most different score vectors."""
    first = evidence.samples[evidence.arms[0]][0]
    if first.visible.shape[-1] < 2:
        return None
    spread = [
        sum(
            len(np.unique(one[0].visible[place].reshape(-1, first.visible.shape[-1]), axis=0))
            for one in evidence.samples.values()
        )
        for place in range(len(first.problems))
    ]
    place = int(np.argmax(spread))
    figure, panels = _panels(len(evidence.arms))
    half = first.visible.shape[-1] // 2
    for axes, arm in zip(panels, evidence.arms, strict=True):
        rows = evidence.samples[arm][0].visible[place].reshape(-1, first.visible.shape[-1])
        points = np.stack([np.nanmean(rows[:, :half], axis=1), np.nanmean(rows[:, half:], axis=1)], axis=1)
        where, counts = np.unique(points, axis=0, return_counts=True)
        colour = COLOURS[list(evidence.arms).index(arm) % len(COLOURS)]
        axes.scatter(where[:, 0], where[:, 1], s=900 * counts / counts.sum() + 6, color=colour, alpha=0.6, label=arm)
        axes.set_xlim(-0.08, 1.08)
        axes.set_ylim(-0.08, 1.08)
        _finish(axes, arm, f"objectives 1 to {half}", f"objectives {half + 1} to {first.visible.shape[-1]}")
    answers = first.keys[0].size
    return Plot(
        "Reward space",
        _png(figure),
        f"The {answers} answers of each arm (first seed) to {first.problems[place]}, the problem with the most "
        "different score vectors: "
        "mean of the first half of its objectives against the mean of the second half; the area of a point is its "
        "share of the answers.",
    )

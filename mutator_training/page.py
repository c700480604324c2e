"""The page of a comparison: one HTML file that needs nothing else, and `report.json` beside it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from evolve.files import make_folder
from mutator_training.evidence import Evidence
from mutator_training.lab import COSTS
from mutator_training.plots import Plot, plots
from mutator_training.results import results

REPORT = "report.json"
PAGE = "report.html"
PLOTS = "plots"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1180px; margin: 2em auto; padding: 0 1em; }
h1, h2 { line-height: 1.2; } figure { margin: 1.5em 0; } img { max-width: 100%; height: auto; }
figcaption, .note { color: #555; font-size: 13px; max-width: 60em; }
table { border-collapse: collapse; font-size: 13px; margin: 1em 0; } th, td { padding: .25em .7em; text-align: right; }
th:first-child, td:first-child { text-align: left; }
tr:nth-child(even) { background: #f4f4f4; } th { border-bottom: 1px solid #999; }
"""


def write_report(evidence: Evidence, folder: Path) -> dict[str, Any]:
    """Write `report.json`, `report.html` and its images as `plots/NAME.png` into a folder and return the figures."""
    found = results(evidence)
    images = plots(found, evidence)
    make_folder(folder / PLOTS)
    for image in images:
        name = re.sub(r"[^a-z0-9]+", "-", image.title.lower()).strip("-")
        (folder / PLOTS / f"{name}.png").write_bytes(image.png)
    for name, text in ((REPORT, json.dumps(found, indent=1)), (PAGE, page(found, images))):
        unborn = folder / f".{name}"
        unborn.write_text(text, encoding="utf-8")
        unborn.rename(folder / name)
    return found


def page(found: Mapping[str, Any], images: Sequence[Plot]) -> str:
    """Return the page."""
    about = found["about"]
    title = f"Comparison of {', '.join(found['arms'])}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_about(found))}</p>",
        *([_missing(found)] if found["missing"] else []),
        "<h2>What the figures carry</h2>",
        _claims(found),
        *(_figure(image) for image in images),
        "<h2>Cost</h2>",
        _costs(found),
        "<h2>Diversity</h2>",
        _diversity(found),
        "<h2>Every difference</h2>",
        _differences(found),
        "<h2>How it was run</h2>",
        f"<pre>{escape(json.dumps(about, indent=1))}</pre>",
    ]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style><link rel="icon" href="data:,">'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _about(found: Mapping[str, Any]) -> str:
    about = found["about"]
    if "runs" in about:
        return f"From {len(about['runs'])} runs that existed."
    problems = next(iter(found["arms"].values())).get("problems", 0)
    return (
        f"{found['seeds']} seeds of every arm, from the same base; {about['train_steps']} optimizer steps of "
        f"{about['prompts']} prompts "
        f"with {about['group']} scored answers each; then {about['samples']} answers to each of {problems} "
        "held-out problems. All arms "
        "have the same number of scored answers: one with single answers samples as many more completions."
    )


def _missing(found: Mapping[str, Any]) -> str:
    return f'<p class="note">Not finished, and left out: {escape(", ".join(found["missing"]))}.</p>'


def _claims(found: Mapping[str, Any]) -> str:
    """Return the primary endpoint, then what else is carried, as one table."""
    differences = found["differences"]
    shown = [one for one in differences if one["primary"] or one["claimed"]]
    crossings = "".join(f"<li><b>Crossing:</b> {escape(text)}</li>" for text in found["crossings"])
    table = _table(HEAD, map(row, shown)) if shown else "<p>Nothing was compared.</p>"
    return f'{f"<ul>{crossings}</ul>" if crossings else ""}{table}<p class="note">{escape(note(found))}</p>'


HEAD = ("arms", "measure", "tests", "difference", "simultaneous 95 %", "problems ahead / behind", "seeds", "carried")


def row(one: Mapping[str, Any]) -> list[str]:
    """Return a difference as a row under `HEAD`."""
    return [
        f"{one['first']} - {one['second']}",
        one["measure"] + (" (primary)" if one["primary"] else ""),
        one["side"],
        f"{one['mean']:+.4f}",
        f"{one['joint_low']:+.4f} to {one['joint_high']:+.4f}",
        f"{one['better']} / {one['worse']} of {one['problems']}",
        str(one["seeds"]),
        "yes" if one["claimed"] else "no",
    ]


def note(found: Mapping[str, Any]) -> str:
    """Return what the intervals of a comparison are."""
    differences = found["differences"]
    primary = [one for one in differences if one["primary"]]
    if not differences:
        return "Nothing was compared."
    others = sum(one["claimed"] for one in differences) - sum(one["claimed"] for one in primary)
    return (
        f"The primary endpoint is {primary[0]['measure']} on {primary[0]['side']} tests: its intervals hold together over "
        f"{len(primary)} pairs of arms. {others} of {len(differences) - len(primary)} other differences are carried; their "
        "intervals hold together over all that were looked at. A difference is carried where the interval leaves 0 out, and "
        "never with one seed."
    )


def _figure(image: Plot) -> str:
    data = base64.b64encode(image.png).decode()
    picture = f'<img alt="{escape(image.title)}" src="data:image/png;base64,{data}">'
    return f"<h2>{escape(image.title)}</h2><figure>{picture}<figcaption>{escape(image.caption)}</figcaption></figure>"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    top = "".join(f"<th>{escape(str(cell))}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _costs(found: Mapping[str, Any]) -> str:
    rows = []
    for stage in ("train", "sample", "search"):
        for name, label in COSTS.items():
            cells = [arm["cost"][stage].get(name) for arm in found["arms"].values()]
            if any(cells):
                texts = [
                    "-" if cell is None else f"{_number(cell['mean'])} ({_number(cell['least'])} to {_number(cell['most'])})"
                    for cell in cells
                ]
                rows.append([f"{stage}: {label}", *texts])
    note = '<p class="note">Mean over seeds, in brackets the least and the most, of one arm and seed.</p>'
    return _table(["", *found["arms"]], rows) + note


def _diversity(found: Mapping[str, Any]) -> str:
    labels = {
        "distinct": "different programs, share of answers",
        "distance": "L1 distance of two answers' score vectors, per objective",
        "coverage": "objectives that some answer reaches",
        "pareto": "score vectors that no other dominates, share of the different ones",
    }
    arms = found["arms"]
    if not all("diversity" in arm for arm in arms.values()):
        return '<p class="note">No samples.</p>'
    rows = [
        [
            label,
            *(
                f"{mean:.3f} ({low:.3f} to {high:.3f})"
                for mean, low, high in (arm["diversity"][name] for arm in arms.values())
            ),
        ]
        for name, label in labels.items()
    ]
    rows.append(["completions that hold all their answers", *(f"{arm['full_completions']:.3f}" for arm in arms.values())])
    note = '<p class="note">Of the answers to one held-out problem; mean over problems and seeds, 95 % intervals.</p>'
    return _table(["", *arms], rows) + note


def _differences(found: Mapping[str, Any]) -> str:
    rows = [
        [*row(one)[:5], f"{one['low']:+.4f} to {one['high']:+.4f}", f"{one['sign_p']:.2g}", row(one)[-1]]
        for one in found["differences"]
    ]
    return _table((*HEAD[:5], "95 % for itself", "sign test p", HEAD[-1]), rows)

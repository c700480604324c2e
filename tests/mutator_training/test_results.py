"""The reviewer's tests: swapped labels flip every claim, equal arms carry none, and a crossing is called one."""

import json

import numpy as np

from mutator_training.evidence import Evidence
from mutator_training.page import page, row
from mutator_training.plots import plots
from mutator_training.results import results
from mutator_training.samples import Samples
from mutator_training.trace import Trace

PROBLEMS, ANSWERS = 24, 32


def drawn(rng, chances):
    """Samples of problems with these chances that an answer passes; hidden tests agree."""
    passes = (rng.random((PROBLEMS, ANSWERS, 1)) < chances[:, None, None]).astype(np.float32)
    visible = np.repeat(passes[..., None], 2, axis=3)
    keys = rng.integers(1, 100, (PROBLEMS, ANSWERS, 1))
    return Samples([f"p{number}" for number in range(PROBLEMS)], keys, visible, visible[..., :1])


def traces(rng, chance):
    found = {}
    for number in range(PROBLEMS):
        at = 5 if rng.random() < chance else None
        found[f"p{number}"] = Trace([0, 3], [0, 30], [0.0, 1.0 if at else 0.5], at, at and 50, at is not None, 16, 160)
    return found


def evidence(arms, seeds=3, seed=0):
    rng = np.random.default_rng(seed)
    samples = {arm: [drawn(rng, np.array(chances)) for _ in range(seeds)] for arm, (chances, _) in arms.items()}
    searches = {arm: [traces(rng, chance) for _ in range(seeds)] for arm, (_, chance) in arms.items()}
    row = {"step": 0, "pass": {"1": [0.5] * PROBLEMS}, "distinct": 0.1, "kl": 0.0, "visible": 0.5, "hidden": 0.4}
    trainings = {arm: [{"steps": [], "curve": [row, row | {"step": 5}], "cost": {}}] * seeds for arm in arms}
    costs = {arm: [{"train": {"answers": 7}, "sample": {"answers": 3}, "search": {"seconds": 1.5}}] * seeds for arm in arms}
    about = {"train_steps": 5, "prompts": 1, "group": 8, "samples": ANSWERS, "base": {}}
    return Evidence(list(arms), dict.fromkeys(arms, 1), about, samples, trainings, searches, costs, [])


SHARP = ([0.6] * 10 + [0.0] * 14, 0.1)
"""Solves some problems often and the others never."""
BROAD = ([0.25] * 24, 0.9)


def test_a_crossing_is_found_and_called_one():
    found = results(evidence({"sharp": SHARP, "broad": BROAD}))
    assert any("broad is ahead of sharp in pass@32 on visible tests" in claim for claim in found["claims"])
    assert any("broad is ahead of sharp in solved in search" in claim for claim in found["claims"])
    later = results(evidence({"sharp": ([0.9] * 16 + [0.0] * 8, 0.5), "broad": ([0.25] * 24, 0.5)}))
    assert json.loads(json.dumps(later)) == later
    assert later["crossings"]
    assert later["crossings"][0].startswith("sharp is ahead of broad in pass@1, broad is ahead of sharp in pass@32")


def test_swapping_the_labels_flips_every_claim():
    one = evidence({"a": SHARP, "b": BROAD})
    names = {"a": "b", "b": "a"}
    swapped = Evidence(
        one.arms,
        one.answers,
        one.about,
        *({names[arm]: found for arm, found in each.items()} for each in (one.samples, one.trainings, one.searches)),
        one.costs,
        [],
    )
    first, second = results(one), results(swapped)

    def renamed(text):
        return (
            text.replace("a is ahead of b", "#")
            .replace("b is ahead of a", "a is ahead of b")
            .replace("#", "b is ahead of a")
        )

    assert first["claims"]
    assert [renamed(claim) for claim in first["claims"]] == second["claims"]
    assert all(one["mean"] == -two["mean"] for one, two in zip(first["differences"], second["differences"], strict=True))


def test_the_primary_endpoint_stands_first_whatever_comes_out():
    found = results(evidence({"a": SHARP, "b": SHARP, "c": BROAD}))
    primary = [one for one in found["differences"] if one["primary"]]
    assert found["differences"][:3] == primary
    assert {(one["measure"], one["side"]) for one in primary} == {(primary[0]["measure"], primary[0]["side"])}
    greatest = max(int(one["measure"].split("@")[1]) for one in found["differences"] if one["measure"].startswith("pass@"))
    assert primary[0]["measure"] == f"pass@{greatest}"
    html = page(found, [])
    table = html[html.index("What the figures carry") : html.index("<h2>Cost")]
    assert table.count("(primary)") == 3
    assert table.index("(primary)") < table.index(">yes<") or not any(one["claimed"] for one in found["differences"])
    assert "hold together over 3 pairs of arms" in html
    assert row(primary[0])[0] == "a - b"
    for one in found["differences"]:
        assert one["joint_low"] <= one["low"] <= one["high"] <= one["joint_high"]


def test_equal_arms_carry_no_claim():
    """Two arms with the same chances: the share of carried differences over many comparisons stays at the level."""
    rng = np.random.default_rng(5)
    carried = []
    for seed in range(6):
        chances = list(rng.random(PROBLEMS) * 0.3)
        found = results(evidence({"a": (chances, 0.5), "b": (chances, 0.5)}, seed=seed))
        carried += [one["claimed"] for one in found["differences"]]
    assert np.mean(carried) <= 0.07


def test_every_figure_has_a_plot_with_a_caption_that_counts():
    made = evidence({"a": SHARP, "b": BROAD})
    images = plots(results(made), made)
    titles = [image.title for image in images]
    assert {
        "pass@k per answer",
        "best@k per answer",
        "pass@k over training",
        "Frozen search on the hardest problems",
    } <= set(titles)
    assert all(image.png.startswith(b"\x89PNG") for image in images)
    assert all("seed" in image.caption for image in images)
    assert "24 held-out problems and 3 seeds, 32 answers" in images[0].caption

"""A whole comparison at a size that shows no crossing: every stage, the page in a browser, kill -9 in the middle."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from mutator_training.samples import Samples
from tests.conftest import ROOT
from tests.evolve.conftest import EVOLVE
from tests.evolve.test_real import evolve, rows
from tests.mutator_training.conftest import write_letters

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

REDUCED = [
    "compare", "--preset", "toy", "--arms", "base,grpo,vpo", "--seeds", "2", "--train-steps", "8", "--prompts", "8",
    "--group", "8", "--samples", "32", "--search-budget", "32", "--hardest", "2", "--set", "curve_every=4",
    "--set", "curve_samples=16", "--set", "held_out=24", "--set", 'shape={"steps": 120, "batch": 64}', "--json",
]  # fmt: skip
TIMES = ("seconds", "memory")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """An undisturbed comparison and its report."""
    folder = tmp_path_factory.mktemp("compare") / "whole"
    done = evolve(*REDUCED, "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def without_times(found):
    """The report without what the clock says."""
    if isinstance(found, dict):
        return {name: without_times(value) for name, value in found.items() if not any(time in name for time in TIMES)}
    return [without_times(value) for value in found] if isinstance(found, list) else found


def test_every_arm_is_trained_sampled_searched_and_costed(comparison):
    folder, report = comparison
    assert report == json.loads((folder / "report.json").read_text())
    assert list(report["arms"]) == ["base", "grpo", "vpo"]
    assert report["seeds"] == 2
    costs = {arm: found["cost"] for arm, found in report["arms"].items()}
    assert costs["base"]["train"] == {}
    assert costs["grpo"]["train"]["answers"]["mean"] == costs["vpo"]["train"]["answers"]["mean"] == 8 * 8 * 8
    assert costs["grpo"]["train"]["completions"]["mean"] == 4 * costs["vpo"]["train"]["completions"]["mean"]
    assert all(cost["sample"]["answers"]["mean"] == 24 * 32 for cost in costs.values())
    assert all(cost["search"]["answers"]["mean"] > 0 for cost in costs.values())
    assert [row["step"] for row in report["training"]["vpo"]["curve"]] == [0, 4, 8]
    assert len(report["training"]["grpo"]["steps"]) == 8
    assert report["training"]["vpo"]["curve"][-1]["kl"][0] > 0
    assert len(report["search"]["problems"]) == 2
    measures = {(one["measure"], one["side"]) for one in report["differences"]}
    assert {
        ("pass@1", "visible"),
        ("pass@32", "hidden"),
        ("best@32", "visible"),
        ("solved in search", "visible"),
    } <= measures


def test_nothing_is_done_twice(comparison):
    folder, report = comparison
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.json") if "report" not in path.name}
    started = time.monotonic()
    done = evolve("compare", "--out", folder, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == report
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert time.monotonic() - started < 120
    other = evolve(*REDUCED, "--out", folder, "--samples", "16")
    assert other.returncode == 2
    assert "another plan (samples differ)" in " ".join(other.stderr.split())


def test_kill_9_in_the_middle_gives_the_same_report(comparison, tmp_path):
    _, report = comparison
    folder = tmp_path / "whole"
    process = subprocess.Popen(
        [EVOLVE, *REDUCED, "--out", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while not list(folder.glob("cells/*/work/curve-000004.json")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    gone = time.monotonic() + 15
    while workers(folder):
        assert time.monotonic() < gone, workers(folder)
        time.sleep(0.1)
    assert not (folder / "report.json").exists()
    done = evolve(*REDUCED, "--out", folder)
    assert done.returncode == 0, done.stderr
    assert without_times(json.loads(done.stdout)) == without_times(report)


def workers(folder):
    """Processes that still work on a comparison."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in line:
                found.append(line)
    return found


def test_the_page_stands_alone_in_a_browser(comparison, chromium):
    from playwright.sync_api import sync_playwright

    folder, report = comparison
    said, asked = [], []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"file://{folder / 'report.html'}")
        images = page.evaluate("[...document.images].map(image => [image.alt, image.complete, image.naturalWidth])")
        text = page.inner_text("body")
        browser.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len(images) >= 8
    assert all(complete and width > 400 for _, complete, width in images), images
    assert "2 seeds of every arm" in text
    assert all(claim in text for claim in report["crossings"])


def test_runs_that_exist_are_compared(comparison, tmp_path):
    folder, _ = comparison
    runs = [
        f"--from={arm}={folder}/cells/{arm}-s{seed}/search/{task.name}"
        for arm in ("grpo", "vpo")
        for seed in (0, 1)
        for task in sorted((folder / "cells/vpo-s0/search").iterdir())
    ]
    done = evolve("compare", *runs, "--out", tmp_path / "runs", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["seeds"] == 2
    assert list(report["search"]["arms"]) == ["grpo", "vpo"]
    assert (tmp_path / "runs" / "report.html").is_file()
    wrong = evolve("compare", *runs[:3], "--out", tmp_path / "wrong")
    assert wrong.returncode == 2
    assert "every arm needs the same problems" in " ".join(wrong.stderr.split())


def test_problem_folders_with_a_served_model(tiny, docker_url, image, tmp_path):
    """The same through the real server, sandbox and training, on a random model that solves nothing."""
    folder, letters = tmp_path / "folders", write_letters(tmp_path / "letters")
    sizes = ["--train-steps", 1, "--prompts", 1, "--group", 4, "-m", 2, "--samples", 4, "--search-budget", 4, "--hardest", 1]
    given = ["--arms", "base,vpo", "--seeds", 1, *sizes, "--set", f"model={tiny / 'tiny'}", "--set", "max_tokens=32"]
    done = evolve(
        "compare", ROOT / "problems/csv_line", "--train", letters, "--preset", "cpu", *given,
        "--out", folder, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["claims"] == []
    assert report["arms"]["vpo"]["cost"]["train"]["answers"]["mean"] > 0
    assert report["arms"]["vpo"]["cost"]["train"]["trained_tokens"]["mean"] > 500
    assert [one["sample"]["completions"]["mean"] for one in (arm["cost"] for arm in report["arms"].values())] == [4, 2]
    assert report["search"]["problems"] == ["csv_line"]
    samples = Samples.load(folder / "cells" / "vpo-s0" / "samples.npz")
    assert samples.keys.shape == (1, 2, 2)
    assert samples.hidden.shape[-1] > 0
    names = {
        arm: rows(folder / "cells" / f"{arm}-s0" / "samples/runs/csv_line", "select name from mutator")
        for arm in ("base", "vpo")
    }
    assert names["base"] == [("tiny",)]
    assert names["vpo"][0][0].startswith("policy-")
    both = evolve("compare", ROOT / "problems/csv_line", "--train", ROOT / "problems/csv_line", "--out", tmp_path / "no")
    assert both.returncode == 2
    assert "both held out and trained on" in " ".join(both.stderr.split())

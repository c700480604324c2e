"""What a person is told while a search runs."""

import io

from rich.console import Console

from evolve.history import Totals
from evolve.options import Progress
from evolve.progress import Display


def test_a_note_is_told_once_and_kept_in_the_log(tmp_path):
    out = io.StringIO()
    display = Display(Console(file=out), tmp_path / "run.log")
    progress = Progress(Totals(1, 2, 0, 0, 10, 10, 1.0), 3)
    display.observe(progress)
    progress.note = "from now on whole programs are asked for"
    display.observe(progress)
    display.observe(progress)
    assert out.getvalue().count("whole programs") == 1
    assert (tmp_path / "run.log").read_text().count("whole programs") == 1

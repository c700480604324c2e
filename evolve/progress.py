"""Show a run's progress: a live panel on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from evolve.files import make_folder
from evolve.options import Progress
from evolve.visible import visible

LINE_SECONDS = 10.0


class Display:
    """Shows `Progress` and keeps what is said in the run's log.

    Args:
        console: where to show it (stderr, so that stdout stays for results).
        log: file that gets every message with its time; None keeps none.
    """

    def __init__(self, console: Console, log: Path | None):
        self._console = console
        self._log = log
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._started = time.monotonic()
        self._tokens_before: int | None = None
        self._last_line = 0.0
        self._told = ""

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Tell one thing."""
        text = visible(text)
        self._console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)
        if self._log is not None:
            make_folder(self._log.parent)
            with self._log.open("a", encoding="utf-8") as log:
                log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def observe(self, progress: Progress) -> None:
        """Show the new state, and tell its note once."""
        if progress.note != self._told:
            self._told = progress.note
            self.say(progress.note)
        if self._tokens_before is None:
            self._tokens_before = progress.totals.completion_tokens
            self._started = time.monotonic()
        if self._live is not None:
            self._live.update(self._table(progress))
        elif time.monotonic() - self._last_line > LINE_SECONDS:
            self._last_line = time.monotonic()
            cells = " · ".join(f"{name} {value}" for name, value in self._cells(progress))
            self._console.print(cells, highlight=False, markup=False, soft_wrap=True)

    def _cells(self, progress: Progress) -> list[tuple[str, str]]:
        totals = progress.totals
        seconds = time.monotonic() - self._started
        speed = (totals.completion_tokens - (self._tokens_before or 0)) / seconds if seconds > 1 else 0.0
        unusable = f"{100 * totals.unusable / totals.candidates:.0f} %" if totals.candidates else "-"
        best = progress.best
        cells = [
            ("generation", str(totals.generation)),
            ("candidates", f"{totals.candidates + progress.under_way} ({totals.duplicates} twins)"),
            ("tokens/s", f"{speed:.1f}"),
            ("best score", "-" if best is None else f"{best.fitness:.3f}"),
            ("tests passed", f"{progress.best_passed} of {progress.tests}"),
            ("unusable", unusable),
        ]
        return cells if progress.tests else [cell for cell in cells if cell[0] != "tests passed"]

    def _table(self, progress: Progress) -> Table:
        table = Table(box=None, padding=(0, 2))
        cells = self._cells(progress)
        for name, _ in cells:
            table.add_column(name)
        table.add_row(*(value for _, value in cells))
        return table

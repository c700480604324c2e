"""The command `evolve` with its training half. Nothing of it is imported before a training command is called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from evolve import cli, render
from evolve.progress import Display
from evolve.refresher import TRAINING, Context, Refresher
from mutator_training.compare_cli import compare
from mutator_training.train_cli import train

err = Console(stderr=True)


def _refresher(given: Mapping[str, Any], context: Context) -> Refresher:
    """Make the refresher of a run; what it needs is imported now."""
    from mutator_training.refresh import MutatorRefresher

    return MutatorRefresher(given, context)


TRAINING.factory = _refresher
cli.app.command("train")(train)
cli.app.command("compare")(compare)


@cli.mutator_app.command("merge")
def merge(
    adapter: Annotated[Path, typer.Argument(help="Folder of the adapter.")],
    out: Annotated[Path, typer.Option(help="Folder of the model that is made.")],
    model: Annotated[str | None, typer.Option(help="Base model; default the one that the adapter names.")] = None,
) -> None:
    """Merge an adapter into its base model: full weights for `--model` and for any server."""
    from evolve.models import resolve
    from mutator_training.merge import merge as work

    with Display(err, None) as display:
        base = None if model is None else resolve(model, display.say)
        made = work(adapter, out, base)
    render.say(f"{made}: use it with --model {made}")


def main() -> NoReturn:
    """Run the command."""
    cli.main()


if __name__ == "__main__":
    main()

"""The command `evolve` with its training half. Nothing of it is imported before a training command is called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from evolve import cli, render
from evolve.arguments import Json
from evolve.errors import BadInput, nearest
from evolve.progress import Display
from evolve.refresher import TRAINING, Context, Refresher

err = Console(stderr=True)


def _refresher(given: Mapping[str, Any], context: Context) -> Refresher:
    """Make the refresher of a run; what it needs is imported now."""
    from mutator_training.refresh import MutatorRefresher

    return MutatorRefresher(given, context)


TRAINING.factory = _refresher


@cli.app.command("train")
def train(
    runs: Annotated[list[Path], typer.Argument(help="Runs whose rollouts the mutator learns from.")],
    out: Annotated[Path, typer.Option(help="Folder of the adapter that is made.")],
    estimator: Annotated[str, typer.Option(help="Advantage estimator; docs/estimators.md names them.")] = "vpo",
    epochs: Annotated[float, typer.Option(min=0.01, help="Passes over the rollouts.")] = 1.0,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Of AdamW.")] = 1e-5,
    beta: Annotated[float, typer.Option(min=0.0, help="Weight of the KL divergence to the base model.")] = 1e-3,
    groups: Annotated[int, typer.Option(min=1, help="Groups of one optimizer step.")] = 4,
    micro_batch: Annotated[int, typer.Option(min=1, help="Completions of one forward and backward pass.")] = 2,
    adapter: Annotated[Path | None, typer.Option(help="Adapter to go on from; it must be the one that sampled.")] = None,
    model: Annotated[str | None, typer.Option(help="Base model; default the one that the runs sampled from.")] = None,
    off_policy: Annotated[
        bool, typer.Option("--off-policy", help="Take completions of every mutator, corrected per token by their own ratio.")
    ] = False,
    drop_cut: Annotated[
        bool, typer.Option("--drop-cut", help="Leave out completions that ended at the token limit.")
    ] = False,
    trainer: Annotated[list[str] | None, typer.Option("--trainer", help="KEY=VALUE for TRL's GRPOConfig.")] = None,
    lora: Annotated[list[str] | None, typer.Option("--lora", help="KEY=VALUE for PEFT's LoraConfig.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Train a mutator on recorded runs: a LoRA adapter that `evolve run --adapter`, vLLM and PEFT load."""
    from evolve.models import resolve
    from mutator_training.adapter import AdapterSpec
    from mutator_training.adapter import train as work
    from mutator_training.estimators import ESTIMATORS
    from mutator_training.lineage import behaviour

    if estimator not in ESTIMATORS:
        known = ", ".join(ESTIMATORS)
        raise BadInput(f"--estimator: no estimator {estimator!r}{nearest(estimator, ESTIMATORS)} Known: {known}.")
    base, served = behaviour(runs)
    with Display(err, None) as display:
        name = model or base
        spec = AdapterSpec(
            runs=[str(run) for run in runs],
            base=str(resolve(name, display.say)),
            base_name=name,
            out=str(out),
            start=None if adapter is None else str(adapter),
            trainer={
                "estimator": estimator,
                "epochs": epochs,
                "learning_rate": learning_rate,
                "beta": beta,
                "groups_per_step": groups,
                "micro_batch": micro_batch,
                "trainer": cli.pairs("--trainer", trainer),
            },
            selection={"mutator": None if off_policy else served, "keep_cut": not drop_cut},
            lora=cli.pairs("--lora", lora),
            seed=seed,
        )
        found = work(spec, display.say)
    shown: dict[str, Any] = {name: value for name, value in found.items() if name not in ("steps", "options")}
    render.show(found, as_json, lambda: render.show_pairs(f"Adapter {out}", shown))


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

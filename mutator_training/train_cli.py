"""`evolve train`: an adapter from recorded runs, or on-policy on a set of problems."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from sqlalchemy import select

from evolve import render
from evolve import schema as s
from evolve.arguments import Json, SandboxOption, pairs
from evolve.connection import FILE, reading
from evolve.distribution import require
from evolve.errors import BadInput, nearest
from evolve.files import make_folder
from evolve.progress import Display

err = Console(stderr=True)


def train(
    given: Annotated[
        list[Path], typer.Argument(metavar="RUN|PROBLEM...", help="Runs whose rollouts are used, or problem folders.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the adapter that is made.")],
    estimator: Annotated[str, typer.Option(help="Advantage estimator; docs/estimators.md names them.")] = "vpo",
    steps: Annotated[
        int | None, typer.Option(min=1, help="On problems: optimizer steps, each on fresh completions; default 20.")
    ] = None,
    prompts: Annotated[int, typer.Option("--prompts", "-P", min=1, help="On problems: problems of a step.")] = 4,
    completions: Annotated[
        int, typer.Option("--completions", "-G", min=2, help="On problems: completions of a prompt.")
    ] = 8,
    answers: Annotated[
        int | None,
        typer.Option(
            "--answers", "-m", min=1, help="On problems: answers of a completion; default what the estimator wants."
        ),
    ] = None,
    way: Annotated[
        Literal["auto", "plain", "scaffold"],
        typer.Option(help="On problems: how several answers come into one completion."),
    ] = "scaffold",
    sampling: Annotated[
        list[str] | None,
        typer.Option("--sampling", help="On problems: KEY=VALUE for every request, such as max_tokens=512."),
    ] = None,
    server: Annotated[
        list[str] | None, typer.Option("--server", help="On problems: KEY=VALUE for vLLM's command line.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="On problems: candidates scored at the same time.")] = 2,
    sandbox: SandboxOption = "docker",
    epochs: Annotated[float | None, typer.Option(min=0.01, help="On runs: passes over the rollouts; default 1.")] = None,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Of AdamW.")] = 1e-5,
    beta: Annotated[float, typer.Option(min=0.0, help="Weight of the KL divergence to the base model.")] = 1e-3,
    groups: Annotated[int | None, typer.Option(min=1, help="On runs: groups of one optimizer step; default 4.")] = None,
    micro_batch: Annotated[int, typer.Option(min=1, help="Completions of one forward and backward pass.")] = 2,
    adapter: Annotated[
        Path | None, typer.Option(help="On runs: adapter to go on from; it must be the one that sampled. Default that one.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Base model; default the one that the runs sampled from.")] = None,
    off_policy: Annotated[
        bool,
        typer.Option(
            "--off-policy", help="On runs: take completions of every mutator, corrected per token by their own ratio."
        ),
    ] = False,
    drop_cut: Annotated[
        bool, typer.Option("--drop-cut", help="On runs: leave out completions that ended at the token limit.")
    ] = False,
    credit: Annotated[
        Literal["completion", "answer"],
        typer.Option(
            help="Whose advantage a token has: its completion's, or what its answer adds over others in its place."
        ),
    ] = "completion",
    truncation: Annotated[
        float | None,
        typer.Option(min=1.0, help="Truncated importance sampling up to this weight, instead of PPO's clipping."),
    ] = None,
    target_kl: Annotated[
        float | None,
        typer.Option(min=0.0, help="End early when a step's KL divergence to the base is greater (nats a token)."),
    ] = None,
    trainer: Annotated[list[str] | None, typer.Option("--trainer", help="KEY=VALUE for TRL's GRPOConfig.")] = None,
    lora: Annotated[list[str] | None, typer.Option("--lora", help="KEY=VALUE for PEFT's LoraConfig.")] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes of the gradient steps, one per GPU, by `accelerate launch`.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Train a mutator: a LoRA adapter that `evolve run --adapter`, vLLM and PEFT load.

    From recorded runs nothing is sampled or scored again. On problems every step samples from the mutator as it is, as in
    the paper on VPO; a training that was stopped goes on with the same command.
    """
    from mutator_training.credit import check_credit
    from mutator_training.estimators import ESTIMATORS, SEVERAL_ANSWERS

    if estimator not in ESTIMATORS:
        known = ", ".join(ESTIMATORS)
        raise BadInput(f"--estimator: no estimator {estimator!r}{nearest(estimator, ESTIMATORS)} Known: {known}.")
    check_credit(estimator, credit)
    if out.exists():
        raise BadInput(f"{out} exists; an adapter is never overwritten. Name another folder with --out.")
    options = {
        "estimator": estimator,
        "learning_rate": learning_rate,
        "beta": beta,
        "micro_batch": micro_batch,
        "credit": credit,
        "truncation": truncation,
        "target_kl": target_kl,
        "trainer": pairs("--trainer", trainer),
    }
    runs, problems = _sorted(given)
    with Display(err, None) as display:
        if runs:
            _only("runs", steps=steps, answers=answers, sampling=sampling, server=server)
            options |= {"epochs": epochs or 1.0, "groups_per_step": groups or 4}
            common = {"lora": pairs("--lora", lora), "seed": seed, "processes": processes}
            selection = {"keep_cut": not drop_cut} | ({"mutator": None} if off_policy else {})
            found = _from_runs(runs, out, model, adapter, {"trainer": options, "selection": selection, **common}, display)
        else:
            _only("problems", epochs=epochs, groups=groups, adapter=adapter, off_policy=off_policy, drop_cut=drop_cut)
            from evolve.serving import MutatorOptions
            from mutator_training.on_policy import OnPolicyOptions

            wanted = OnPolicyOptions(
                steps=steps or 20,
                prompts=prompts,
                completions=completions,
                answers=answers or (3 if estimator in SEVERAL_ANSWERS else 1),
                trainer=options,
                lora=pairs("--lora", lora),
                seed=seed,
                workers=workers,
                sandbox=sandbox,
                processes=processes,
            )
            rank = int(wanted.lora.get("r", 16))
            settings = {"temperature": 1.0, **pairs("--sampling", sampling)}
            require(settings, pairs("--server", server), "Options of this training")
            mutator = MutatorOptions(
                model=model, way=way, sampling=settings, server=pairs("--server", server), lora_rank=rank
            )
            found = _on_problems(problems, out, wanted, mutator, display)
    shown: dict[str, Any] = {name: value for name, value in found.items() if name not in ("steps", "options", "runs")}
    render.show(found, as_json, lambda: render.show_pairs(f"Adapter {out}", shown))


def _sorted(given: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return runs (those of a suite one by one), or problem folders (those in a folder one by one).

    Raises:
        BadInput: there are both, or something else.
    """
    from evolve.suite import problem_folders, run_folders

    runs: list[Path] = []
    problems: list[Path] = []
    for path in given:
        if not path.is_dir():
            raise BadInput(f"{path} is not a folder. Expected runs, or problem folders.")
        found = [path] if (path / FILE).is_file() else run_folders(path)
        runs += found
        if not found:
            problems += problem_folders(path) or [path]
    if runs and problems:
        raise BadInput(f"{runs[0]} is a run and {problems[0]} is none: train on runs or on problems, not on both at once.")
    return runs, problems


def _only(kind: str, **options: Any) -> None:
    """Refuse options that say nothing about this kind of training.

    Raises:
        BadInput: one is given.
    """
    given = [name for name, value in options.items() if value not in (None, False, [])]
    if given:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise BadInput(f"{named}: without effect when {kind} are trained on.")


def _from_runs(
    runs: Sequence[Path], out: Path, model: str | None, adapter: Path | None, given: dict[str, Any], display: Display
) -> dict[str, Any]:
    """Train on runs; without a word about it, on what their last mutator sampled."""
    from evolve.models import resolve
    from mutator_training.adapter import AdapterSpec
    from mutator_training.adapter import train as work
    from mutator_training.lineage import behaviour

    for run in runs:
        with reading(run) as connection:
            stored = connection.execute(select(s.run.c.options)).scalar_one()["mutator"]
        require(stored.get("sampling") or {}, stored.get("server") or {}, f"{run} was sampled with")
    base, served, sampler = behaviour(runs)
    name = model or base
    on_policy = "mutator" not in given["selection"]
    if adapter is None and sampler is not None and on_policy:
        if not Path(sampler).is_dir():
            raise BadInput(
                f"These rollouts were sampled by {served}, an adapter in {sampler}, which is gone. Name it: --adapter."
            )
        display.say(f"going on from the adapter that sampled: {sampler}")
        adapter = Path(sampler)
    spec = AdapterSpec(
        runs=[str(run) for run in runs],
        base=str(resolve(name, display.say)),
        base_name=name,
        out=str(out),
        start=None if adapter is None else str(adapter),
        **{**given, "selection": {"mutator": served, **given["selection"]}},
    )
    return work(spec, display.say)


def _on_problems(problems: Sequence[Path], out: Path, options: Any, mutator: Any, display: Display) -> dict[str, Any]:
    """Train on problems in a folder beside the adapter, which then gets the last version."""
    from evolve.compose import session
    from mutator_training.on_policy import places, publish, summary, train_on

    folder = out.with_name(f"{out.name}.training")
    given = places(problems, folder)
    make_folder(folder)
    display.say(f"training on {len(given)} problems, {options.steps} steps; all that is sampled is kept in {folder}")

    async def work() -> Path:
        async with session(folder, mutator, display.say, lambda _: None) as shared:
            return await train_on(given, folder, options, mutator, shared)

    publish(asyncio.run(work()), out)
    return summary(folder, options.steps)

"""The options that several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from evolve.errors import BadInput
from evolve.sandboxes import SandboxKind

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Candidates = Annotated[int | None, typer.Option("--budget", min=1, help="Stop after this many candidates (answers).")]
Tokens = Annotated[int | None, typer.Option(min=1, help="Stop after this many sampled tokens.")]
Minutes = Annotated[float | None, typer.Option(min=0, help="Stop after this many minutes of search.")]
StopWhen = Annotated[
    Literal["solved"] | None,
    typer.Option(help="Stop when a program passes every visible test; exit 1 if none does."),
]
BaseUrl = Annotated[str | None, typer.Option(help="Use a running OpenAI-compatible server, such as http://host:8000/v1.")]
Model = Annotated[
    str | None,
    typer.Option(help="Hub id, folder, .gguf file or packaged model; with --base-url the served name."),
]
SandboxOption = Annotated[
    SandboxKind,
    typer.Option(
        "--sandbox",
        help="Where candidates run: docker (a container each), docker-reuse (a user each; where scoring bounds the run), "
        "runsc (gVisor) or bwrap (bubblewrap, no daemon needed). See docs/security.md.",
    ),
]
Initial = Annotated[
    str | None, typer.Option(help="Initial program in an evaluator's folder, where it is not initial_program.*.")
]
EvaluatorName = Annotated[str | None, typer.Option(help="Evaluator, where it is not evaluator.py.")]
ConfigName = Annotated[str | None, typer.Option(help="OpenEvolve config, where it is not config.yaml.")]
Network = Annotated[bool, typer.Option("--allow-network", help="Let an evaluator and its candidates use the network.")]
ImportedProblem = Annotated[Path, typer.Option("--problem", help="Problem folder with the evaluator that judged them.")]


def pairs(option: str, given: list[str] | None) -> dict[str, Any]:
    """Return KEY=VALUE pairs as a mapping; values are JSON where they can be, else text."""
    found: dict[str, Any] = {}
    for pair in given or []:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise BadInput(f"{option} takes KEY=VALUE, not {pair!r}.")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found

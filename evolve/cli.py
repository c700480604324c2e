"""The command `evolve`: reads options, calls the parts, prints what they give.

Exit codes: 0 done; 1 the search ended without its stated goal (`--stop-when`); 2 bad input; 3 infrastructure;
70 a fault of ours; 130 interrupted.
"""

from __future__ import annotations

import asyncio
import io
import sys
import traceback
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from evolve import machine_cli, run_cli, show_cli
from evolve.errors import EvolveError
from evolve.import_cli import import_app
from evolve.visible import visible
from sandbox.base import SandboxError

app = typer.Typer(
    help="Search for programs with a language model, scored per test in sandboxes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vector-evolve {version('vector-evolve')}")
        raise typer.Exit


@app.callback()
def options(
    wanted: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Search for programs with a language model, scored per test in sandboxes."""
    del wanted


mutator_app = typer.Typer(help="The model server.", no_args_is_help=True)
app.add_typer(mutator_app, name="mutator")
app.add_typer(import_app, name="import")
app.command()(run_cli.run)
app.command("resume")(run_cli.resume_run)
app.command()(show_cli.show)
app.command()(show_cli.export)
app.command()(machine_cli.check)
app.command()(machine_cli.doctor)
app.command()(machine_cli.setup)
app.command("stop-engine")(machine_cli.stop_engine)
mutator_app.command("serve")(machine_cli.serve)
mutator_app.command("use")(machine_cli.use_version)

err = Console(stderr=True)
INTERNAL = 70
"""Exit code of a fault of ours (EX_SOFTWARE of sysexits.h)."""


def main() -> NoReturn:
    """Run the command; turn what went wrong into a message and an exit code."""
    _speak_utf_8()
    try:
        code = app(standalone_mode=False)
    except (EvolveError, SandboxError) as error:
        err.print(f"error: {visible(str(error))}", style="bold red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(error.exit_code if isinstance(error, EvolveError) else 3)
    except (KeyboardInterrupt, asyncio.CancelledError):
        err.print("interrupted; what was recorded is kept", highlight=False)
        sys.exit(130)
    except typer.Abort:
        sys.exit(130)
    except typer.TyperException as error:  # a wrong option or argument, with its own message
        show = getattr(error, "show", None)
        if show is None:
            err.print(str(error), highlight=False, markup=False)
        else:
            show()
        sys.exit(2)
    except Exception:  # noqa: BLE001  (the outermost boundary: a fault of ours must not look like a search without its goal)
        err.print(visible(traceback.format_exc()), highlight=False, markup=False, soft_wrap=True)
        err.print("This is a fault of VectorEvolve itself. What was recorded is kept.", style="bold red", highlight=False)
        sys.exit(INTERNAL)
    sys.exit(code if isinstance(code, int) else 0)


def _speak_utf_8() -> None:
    """Under a locale without UTF-8, write it into pipes and files all the same; a terminal gets what it can show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


if __name__ == "__main__":
    main()

"""Run *trusted* programs in this process, or in one beside it: for tests and trials, never for a model's answers.

Protected: nothing at all. There are no limits and no isolation.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sandbox.base import Outcome, Program, Verdict
from sandbox.evaluator import Evaluator


class InProcessSandbox:
    """Calls the entry function, or runs the program with stdin and stdout replaced, in this very process."""

    level = "in-process"

    def __init__(self) -> None:
        self.programs: list[Program] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def run(self, program: Program, inputs: Sequence[bytes]) -> list[Outcome]:
        """See `Sandbox.run`."""
        if program.toolchain is not None:
            raise ValueError("only Python programs run in this process")
        self.programs.append(program)
        return [self._test(program, data) for data in inputs]

    def _test(self, program: Program, data: bytes) -> Outcome:
        started = time.process_time()
        loaded = False
        out = io.StringIO()
        try:
            code = compile(program.source, "program.py", "exec", dont_inherit=True)
            scope: dict[str, Any] = {"__name__": "program" if program.entry else "__main__"}
            exec(program.preamble, scope)
            if program.entry is None:
                loaded = True
                scope["input"] = iter(data.decode().removesuffix("\n").split("\n")).__next__
            with contextlib.redirect_stdout(out):
                exec(code, scope)
                if program.entry is not None:
                    if not callable(scope.get(program.entry)):
                        raise NameError(f"the program defines no function {program.entry}")
                    loaded = True
                    answer = json.dumps(scope[program.entry](*json.loads(data)), allow_nan=False).encode()
                else:
                    answer = out.getvalue().encode()
        except Exception as error:  # noqa: BLE001  (the boundary to the program under test)
            text = f"{type(error).__name__}: {error}"
            return Outcome(Verdict.EXCEPTION, detail=text, loaded=loaded, cpu_seconds=time.process_time() - started)
        return Outcome(None, answer, cpu_seconds=time.process_time() - started)


EVALUATE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from guest.evaluator import run
metrics = run(sys.argv[2], sys.argv[3], sys.argv[1] + "/guest", json.loads(sys.argv[4]))
print("\\n" + json.dumps(metrics, allow_nan=False))
"""


class TrustedEvaluator:
    """Runs an evaluator and a *trusted* program in a process of this user's: for tests and for trying things out.

    Protected: this process, and against an evaluator that hangs. Nothing else.

    Args:
        evaluator: what is run, the program in its process (`separated` is ignored).
        seconds: that an evaluation may take.
    """

    level = "process"

    def __init__(self, evaluator: Evaluator, seconds: float = 10.0):
        self._evaluator = evaluator
        self._seconds = seconds

    async def evaluate(self, source: str) -> Outcome:
        """See `sandbox.evaluator.EvaluatorSandbox.evaluate`."""
        with tempfile.TemporaryDirectory(prefix="vector-evolve-evaluator-") as name:
            folder, program = Path(name, "evaluator"), Path(name, self._evaluator.program)
            for path, data in self._evaluator.files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data)
            program.write_text(source, encoding="utf-8")
            thresholds = None if self._evaluator.thresholds is None else list(self._evaluator.thresholds)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-c",
                EVALUATE,
                str(Path(__file__).parent),
                str(folder / self._evaluator.path),
                str(program),
                json.dumps(thresholds),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=folder,
            )
            try:
                async with asyncio.timeout(self._seconds):
                    out, err = await process.communicate()
            except TimeoutError:
                return Outcome(Verdict.TIMEOUT, loaded=False)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        error = err.decode("utf-8", "replace")
        if process.returncode != 0:
            last = (error.strip().splitlines() or ["it ended without metrics"])[-1]
            verdict = Verdict.INVALID if "NotPlain" in last else Verdict.EXCEPTION
            return Outcome(verdict, detail=last, stderr=error[-2000:], loaded=False)
        return Outcome(None, out.rstrip(b"\n").rpartition(b"\n")[2], stderr=error[-2000:])

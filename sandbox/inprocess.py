"""Run *trusted* programs in this process: for tests and for trying things out, never for a model's answers.

Protected: nothing at all. There are no limits and no isolation.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from sandbox.base import Outcome, Program, Verdict


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
            if program.entry is None:
                loaded = True
                scope["input"] = iter(data.decode().splitlines()).__next__
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

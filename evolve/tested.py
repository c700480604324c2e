"""A problem folder of our own format: `problem.yaml`, `initial_program.*`, `tests.jsonl`, optional `checker.py`.

The format is documented in docs/problems.md.
"""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from evolve.errors import ProblemError
from evolve.folder import read_text
from evolve.parts import digest, hashed
from evolve.strict import Debian, Strict, explain, load_yaml
from sandbox.base import Limits, Toolchain
from sandbox.compare import InvalidAnswer, strict_json
from sandbox.judge import Comparison

STDIN = "stdin"
SUFFIXES = {
    "python": ".py",
    "c": ".c",
    "cpp": ".cpp",
    "javascript": ".js",
    "go": ".go",
    "r": ".R",
    "rust": ".rs",
    "text": ".txt",
}
MAX_SOURCE = 100_000
WORDS = ("name", "statement")
"""Keys of problem.yaml that decide no score."""


class ComparisonSpec(Strict):
    """`comparison:` of problem.yaml."""

    mode: Literal["exact", "tolerance", "unordered", "lines", "livecodebench", "checker"] = "exact"
    abs: float = Field(1e-9, ge=0)
    rel: float = Field(1e-9, ge=0)


class LimitsSpec(Strict):
    """`limits:` of problem.yaml; each is of one test."""

    cpu_seconds: float = Field(2.0, gt=0, le=3600)
    wall_seconds: float | None = Field(None, gt=0, le=36000)
    memory_mb: int = Field(256, ge=16, le=1 << 20)
    output_kb: int = Field(1024, ge=1, le=1 << 16)


class ObjectiveSpec(Strict):
    """An extra objective, scaled to [0, 1]: `best` and less gives 1, `worst` and more gives 0."""

    best: float = Field(ge=0)
    worst: float = Field(gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> ObjectiveSpec:
        if self.worst <= self.best:
            raise ValueError("worst must be greater than best")
        return self


class ObjectivesSpec(Strict):
    """`objectives:` of problem.yaml. Each value is multiplied by the share of visible tests passed."""

    size: ObjectiveSpec | None = None
    """Characters of the source."""
    runtime: ObjectiveSpec | None = None
    """CPU seconds over all visible tests."""


class TestedSpec(Strict):
    """The keys of problem.yaml."""

    name: str = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_./-]+$")
    statement: str = Field(min_length=1)
    entry: str = Field(min_length=1)
    """The function that the tests call, or `stdin` for a program that reads stdin and writes stdout."""
    language: Literal["python", "c", "cpp", "javascript", "go", "r", "rust", "text"] = "python"
    """`text` is for answers that are no programs: they are judged as they are."""
    build: str | None = None
    """For other languages than Python: the command that builds `program.SUFFIX`, in the program's folder."""
    run: str | None = None
    """For other languages than Python: the command that runs the program."""
    comparison: ComparisonSpec = ComparisonSpec()
    limits: LimitsSpec = LimitsSpec()
    packages: Debian = Field(default_factory=list)
    """Debian packages that the sandbox image gets beside Python and numpy."""
    preamble: str = ""
    """Python that runs before every program, in its namespace: imports and helpers that a benchmark gives."""
    objectives: ObjectivesSpec = ObjectivesSpec()

    @model_validator(mode="after")
    def _commands(self) -> TestedSpec:
        if self.preamble:
            _check_preamble(self.preamble, self.language)
        if self.comparison.mode == "livecodebench" and self.entry != STDIN:
            raise ValueError("comparison livecodebench is for what programs print: entry must be stdin")
        if self.language == "python":
            if self.build is not None or self.run is not None:
                raise ValueError("build and run are for other languages than python")
        elif self.language == "text":
            if self.build is not None or self.run is not None or self.entry != STDIN:
                raise ValueError("answers in the language text are not run: entry must be stdin, without build and run")
        elif self.run is None or not self.run.strip():
            raise ValueError(f"a program in {self.language} needs the key run, such as `run: ./program`")
        elif self.entry != STDIN:
            raise ValueError(f"a program in {self.language} reads stdin and writes stdout, so entry must be stdin")
        return self

    @field_validator("comparison", mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"mode": value} if isinstance(value, str) else value

    @field_validator("entry")
    @classmethod
    def _entry_name(cls, value: str) -> str:
        if not value.isidentifier():
            raise ValueError("must be the name of a function, or stdin")
        return value


def _check_preamble(text: str, language: str) -> None:
    if language != "python":
        raise ValueError("preamble is for programs in Python")
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ValueError(f"preamble is not Python: {error}") from None


class TestLine(Strict):
    """One line of tests.jsonl."""

    __test__ = False

    id: str = Field(min_length=1, max_length=100)
    args: list[Any] | None = None
    stdin: str | None = None
    expected: Any
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Test:
    """One test: its input as the sandbox takes it, and what is expected."""

    __test__ = False

    id: str
    input: Any
    """List of positional arguments, or text for stdin."""
    expected: Any

    @property
    def data(self) -> bytes:
        """The input as bytes for the sandbox."""
        return self.input.encode() if isinstance(self.input, str) else json.dumps(self.input).encode()


@dataclass(frozen=True, slots=True)
class TestedProblem:
    """A loaded problem.

    Attributes:
        path: the folder.
        spec: problem.yaml.
        initial: source of the initial program.
        visible: tests that may appear in prompts, drive selection and training.
        hidden: tests for reports and confirmation only.
        checker: source of `checker.py`, or None.
    """

    path: Path
    spec: TestedSpec
    initial: str
    visible: tuple[Test, ...]
    hidden: tuple[Test, ...]
    checker: str | None = None

    @property
    def name(self) -> str:
        """See `Problem`."""
        return self.spec.name

    @property
    def language(self) -> str:
        """See `Problem`."""
        return self.spec.language

    @property
    def entry(self) -> str | None:
        """Entry function, or None for a stdin program."""
        return None if self.spec.entry == STDIN else self.spec.entry

    @property
    def toolchain(self) -> Toolchain | None:
        """How programs are built and run; None for Python."""
        spec = self.spec
        if spec.run is None:
            return None
        build = tuple(shlex.split(spec.build)) if spec.build else ()
        return Toolchain(f"program{SUFFIXES[spec.language]}", build, tuple(shlex.split(spec.run)))

    @property
    def limits(self) -> Limits:
        """Limits of one test."""
        spec = self.spec.limits
        return Limits(spec.cpu_seconds, spec.wall_seconds, spec.memory_mb, spec.output_kb)

    @property
    def comparison(self) -> Comparison:
        """How answers are compared."""
        spec = self.spec.comparison
        return Comparison(spec.mode, spec.abs, spec.rel)

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of the dimensions of the score vector: the visible tests, then extra objectives."""
        return tuple(name for name, _ in self.dimensions)

    @property
    def dimensions(self) -> list[tuple[str, str]]:
        """See `Problem`."""
        extra = [name for name in ("runtime", "size") if getattr(self.spec.objectives, name) is not None]
        return [(test.id, "test") for test in self.visible] + [(name, "extra") for name in extra]

    def scales(self, names: Sequence[str]) -> dict[int, tuple[float, float]]:
        """See `Problem`: scores of tests lie in [0, 1]."""
        del names
        return {}

    @property
    def digest(self) -> str:
        """See `Problem`."""
        return digest(self.parts)

    @property
    def parts(self) -> dict[str, str]:
        """See `Problem`."""
        spec = self.spec.model_dump(mode="json")
        plain = {name: field.get_default(call_default_factory=True) for name, field in TestedSpec.model_fields.items()}
        parts = {
            f"problem.yaml: {name}": hashed(value)
            for name, value in spec.items()
            if name in ("comparison", "limits") or (name not in WORDS and getattr(self.spec, name) != plain[name])
        }
        for tests, where in ((self.visible, ""), (self.hidden, " (hidden)")):
            parts |= {f"test {test.id}{where}": hashed([test.input, test.expected]) for test in tests}
        parts["the order of the tests"] = hashed([test.id for test in (*self.visible, *self.hidden)])
        if self.checker is not None:
            parts["checker.py"] = hashed(self.checker)
        return parts


def load_tested(path: Path) -> TestedProblem:
    """Load a problem folder of tests.

    Raises:
        ProblemError: the folder is broken; the text names the file, the line or key, and what was expected.
    """
    if not path.is_dir():
        raise ProblemError(f"{path} is not a folder. Expected a problem folder with a problem.yaml in it.")
    spec = load_yaml(path / "problem.yaml", TestedSpec, path)
    initial = _load_initial(path, spec.language)
    tests = _load_tests(path / "tests.jsonl", spec)
    visible = tuple(test for test, hidden in tests if not hidden)
    hidden = tuple(test for test, hidden in tests if hidden)
    if not visible:
        raise ProblemError(f"{path / 'tests.jsonl'} has no visible test; at least one without `hidden: true` is needed.")
    checker_path = path / "checker.py"
    wants_checker = spec.comparison.mode == "checker"
    if wants_checker and not checker_path.is_file():
        raise ProblemError(f"{path / 'problem.yaml'} says `comparison: checker`, but there is no checker.py beside it.")
    if checker_path.is_file() and not wants_checker:
        raise ProblemError(
            f"{checker_path} is there, but problem.yaml doesn't say `comparison: checker`, so nothing would call it."
        )
    checker = read_text(checker_path, path) if wants_checker else None
    if checker is not None and "def check(" not in checker:
        raise ProblemError(f"{checker_path} must define `check(input, expected, got)` and return a number in [0, 1].")
    return TestedProblem(path, spec, initial, visible, hidden, checker)


def _load_initial(path: Path, language: str) -> str:
    expected = path / f"initial_program{SUFFIXES[language]}"
    if not expected.is_file():
        others = ", ".join(sorted(other.name for other in path.glob("initial_program*")))
        found = f" Found instead: {others}." if others else ""
        raise ProblemError(f"{expected} is missing (the language is {language}).{found}")
    source = read_text(expected, path)
    if not source.strip():
        raise ProblemError(f"{expected} is empty; the search starts from it, so it must be a program that runs.")
    if len(source) > MAX_SOURCE:
        raise ProblemError(f"{expected} has {len(source)} characters; at most {MAX_SOURCE} are taken.")
    return source


def _load_tests(path: Path, spec: TestedSpec) -> list[tuple[Test, bool]]:
    is_function = spec.entry != STDIN
    tests: list[tuple[Test, bool]] = []
    seen: dict[str, int] = {}
    for number, text in enumerate(read_text(path, path.parent).split("\n"), start=1):
        if not text.strip():
            continue
        where = f"{path}, line {number}"
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProblemError(f"{where}: not JSON ({error}).") from None
        if not isinstance(content, dict):
            raise ProblemError(f'{where}: expected an object such as {{"id": "a", "args": [1], "expected": 2}}.')
        try:
            line = TestLine.model_validate(content)
        except ValidationError as error:
            raise ProblemError(explain(path, error, TestLine, None).replace(str(path), where, 1)) from None
        wanted, other = ("args", "stdin") if is_function else ("stdin", "args")
        if getattr(line, wanted) is None or getattr(line, other) is not None:
            kind = "calls a function" if is_function else "reads stdin"
            raise ProblemError(f"{where}: the problem {kind}, so a test has {wanted!r} and no {other!r}.")
        if not is_function and not isinstance(line.expected, str):
            raise ProblemError(f"{where}: 'expected' of a stdin program is the text of its stdout.")
        _check_reachable(line, spec, where)
        if line.id in seen:
            raise ProblemError(f"{where}: the id {line.id!r} is already used in line {seen[line.id]}.")
        seen[line.id] = number
        tests.append((Test(line.id, getattr(line, wanted), line.expected), line.hidden))
    if not tests:
        raise ProblemError(f"{path} holds no test.")
    return tests


def _check_reachable(line: TestLine, spec: TestedSpec, where: str) -> None:
    """Refuse a test that no program can pass, or whose input can't be given to one.

    Raises:
        ProblemError: it is such a test.
    """
    if line.stdin is not None and not _is_unicode(line.stdin):
        raise ProblemError(f"{where}: 'stdin' holds half of a surrogate pair, which is no text that a program could read.")
    if spec.comparison.mode == "checker":
        return
    expected = line.expected
    if isinstance(expected, str) and spec.entry == STDIN:
        if not _is_unicode(expected):
            raise ProblemError(f"{where}: 'expected' holds half of a surrogate pair, which no program can print.")
        data = expected.encode()
    else:
        data = json.dumps(expected).encode()
        try:
            strict_json(data)
        except InvalidAnswer as error:
            raise ProblemError(
                f"{where}: no answer can be equal to 'expected': {error}. Answers are plain JSON; for others say "
                "`comparison: checker`."
            ) from None
    if len(data) > spec.limits.output_kb << 10:
        raise ProblemError(
            f"{where}: 'expected' has {len(data) / 1024:.0f} KB, and a program may write {spec.limits.output_kb}. Raise "
            "`limits: {output_kb: ...}`."
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

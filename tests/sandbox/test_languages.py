"""Other languages through build and run commands: the same guarantees, shown for C++ and JavaScript."""

import docker
import pytest

from evolve import problem as problems
from evolve.grading import TestGrader
from sandbox.base import Limits, Program, Toolchain, Verdict
from sandbox.docker import DockerSandbox
from sandbox.image.build import ensure_image
from tests.conftest import write_problem

pytestmark = pytest.mark.slow
LIMITS = Limits(cpu_seconds=1, wall_seconds=3, memory_mb=256, output_kb=64)
CPP = Toolchain("program.cpp", ("g++", "-O1", "-o", "program", "program.cpp"), ("./program",))
JAVASCRIPT = Toolchain("program.js", (), ("node", "program.js"))
INPUTS = [b"1\n", b"2\n", b"3\n"]

CPP_MAIN = """
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <signal.h>
#include <string>
#include <unistd.h>
using namespace std;
int main() { int x; cin >> x; %s cout << x + 1; }
"""
JS_MAIN = """
const fs = require("fs");
const x = Number(fs.readFileSync(0, "utf8"));
%s
process.stdout.write(String(x + 1));
"""
REPLACE = """
if (x == 1) { unlink("program"); ofstream("program") << "#!/bin/echo 9"; ofstream("/tmp/x") << 1; }
else if (ifstream("/tmp/x")) x = 100;
"""

CASES = {
    "cpp good": (CPP, CPP_MAIN % "", ["2", "3", "4"]),
    "cpp loops": (CPP, CPP_MAIN % "if (x == 2) for (volatile int i = 0;; i++);", ["2", "cpu", "4"]),
    "cpp crashes": (CPP, CPP_MAIN % "if (x == 2) raise(SIGSEGV);", ["2", "signal", "4"]),
    "cpp exits": (CPP, CPP_MAIN % "if (x == 2) exit(3);", ["2", "exit", "4"]),
    "cpp sleeps": (CPP, CPP_MAIN % "if (x == 2) sleep(60);", ["2", "timeout", "4"]),
    "cpp floods": (CPP, CPP_MAIN % "while (x == 2) puts(string(65536, 'x').c_str());", ["2", "output", "4"]),
    "cpp hoards": (CPP, CPP_MAIN % "while (x == 2) memset(malloc(1 << 20), 1, 1 << 20);", ["2", "memory", "4"]),
    "cpp replaces itself": (CPP, CPP_MAIN % REPLACE, ["2", "3", "4"]),
    "cpp attacks PID 1": (CPP, CPP_MAIN % "kill(1, 9); kill(-1, 9);", ["2", "3", "4"]),
    "cpp builds from a program that is long": (CPP, "//" + "x" * 50000 + CPP_MAIN % "", ["2", "3", "4"]),
    "cpp leaves very many files": (
        Toolchain(
            "program.cpp", ("sh", "-c", "for i in $(seq 3000); do : > f$i; done; g++ -o program program.cpp"), ("./program",)
        ),
        CPP_MAIN % "",
        ["exception"] * 3,
    ),
    "cpp leaves what can't be read": (
        Toolchain("program.cpp", ("sh", "-c", "g++ -o program program.cpp; mkdir a; : > a/b; chmod 0 a/b"), ("./program",)),
        CPP_MAIN % "",
        ["exception"] * 3,
    ),
    "cpp does not build": (CPP, "int main() { return undeclared; }", ["exception"] * 3),
    "javascript good": (JAVASCRIPT, JS_MAIN % "", ["2", "3", "4"]),
    "javascript loops": (JAVASCRIPT, JS_MAIN % "if (x == 2) while (true);", ["2", "cpu", "4"]),
    "javascript throws": (JAVASCRIPT, JS_MAIN % "if (x == 2) throw new Error('no');", ["2", "exit", "4"]),
    "javascript state": (
        JAVASCRIPT,
        JS_MAIN % "if (fs.existsSync('/tmp/x')) process.exit(5); fs.writeFileSync('/tmp/x', '1');",
        ["2", "3", "4"],
    ),
    "javascript syntax error": (JAVASCRIPT, "let = ;", ["exit"] * 3),
}


@pytest.fixture(scope="module")
def tools(docker_url, image):
    """The sandbox image with compilers, as a problem's `packages` ask for it."""
    client = docker.APIClient(base_url=docker_url, version="auto", timeout=600)
    try:
        return ensure_image(client, ["g++", "nodejs"])
    finally:
        client.close()


async def test_verdicts(docker_url, tools):
    async with DockerSandbox(docker_url, tools, LIMITS, size=2, builds=True) as sandbox:
        for name, (toolchain, source, expected) in CASES.items():
            outcomes = await sandbox.run(Program(source, None, toolchain), INPUTS)
            came = [outcome.answer.decode() if outcome.verdict is None else str(outcome.verdict) for outcome in outcomes]
            assert came == expected, (name, outcomes)
        broken = (await sandbox.run(Program("nonsense", None, CPP), INPUTS))[0]
        assert not broken.loaded
        assert "error" in broken.detail
        (big,) = await sandbox.run(Program("int main() {}", None, CPP), [b"x" * 3_000_000])
        assert big.verdict is None


async def test_a_problem_in_cpp(docker_url, tools, tmp_path):
    spec = {"language": "cpp", "entry": "stdin", "build": "g++ -o program program.cpp", "run": "./program"}
    spec |= {"comparison": "lines", "packages": ["g++", "nodejs"]}
    tests = [{"id": str(x), "stdin": f"{x}\n", "expected": f"{x + 1}\n"} for x in (1, 2)]
    files = {"initial_program.cpp": CPP_MAIN % "if (x == 2) x = 7;"}
    problem = problems.load(write_problem(tmp_path / "p", spec=spec, tests=tests, files=files))
    async with DockerSandbox(docker_url, tools, problem.limits, builds=True) as sandbox:
        score = await TestGrader(problem, sandbox).score(problem.initial)
    assert [result.verdict for result in score.results] == [Verdict.PASS, Verdict.WRONG]

"""Whether an evaluator reads clocks, found in its text: then what it measures depends on where its candidates run."""

from __future__ import annotations

import ast
from collections.abc import Iterable

CLOCKS = {
    "time": {"time", "perf_counter", "monotonic", "process_time", "thread_time"},
    "timeit": {"timeit", "repeat", "Timer", "default_timer"},
    "datetime": {"now", "utcnow", "today"},
    "resource": {"getrusage"},
}
NOTE = (
    "The evaluator reads a clock ({names}). Candidates run in a sandbox of their own, and each call is timed there, about "
    "0.1 ms too long: where calls are shorter than some milliseconds, let it time many in one, or say `trust: "
    "shared_process`."
)


def clocks(texts: Iterable[str]) -> list[str]:
    """Return the clocks that Python sources name, such as `time.perf_counter`; of what is no Python none."""
    found: set[str] = set()
    for text in texts:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        imports = [one for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names]
        aliases = {one.asname: one.name for one in imports if one.asname}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
                module = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                module, name = aliases.get(module, module), node.attr.removesuffix("_ns")
                if name in CLOCKS.get(module, ()):
                    found.add(f"{module}.{name}")
            elif isinstance(node, ast.ImportFrom):
                known = CLOCKS.get(node.module or "", set()) - CLOCKS["datetime"]
                found |= {f"{node.module}.{one.name}" for one in node.names if one.name.removesuffix("_ns") in known}
    return sorted(found)

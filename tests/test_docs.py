"""What the docs promise names tests, and these exist."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent
SECURITY = (ROOT / "docs" / "security.md").read_text()


def test_every_test_that_the_page_on_security_names_exists():
    named = set(re.findall(r"`(test_\w+)`", SECURITY))
    defined = set()
    for path in (ROOT / "tests").rglob("*.py"):
        defined |= set(re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    assert len(named) > 25
    assert named <= defined, named - defined
    assert all((ROOT / path).is_file() for path in re.findall(r"`(tests/[\w/]+\.py)`", SECURITY))


def test_every_case_that_it_names_exists():
    cases = runpy.run_path(str(ROOT / "tests" / "sandbox" / "hostile" / "cases.py"))["CASES"]
    quoted = {" ".join(name.split()) for name in re.findall(r'"([^"]+)"', SECURITY)}
    assert len(quoted) > 20
    assert quoted <= {name for name, *_ in cases}, quoted - {name for name, *_ in cases}

"""Keys of the environment go only where the user sends them."""

import pytest

from evolve import problem as problems
from evolve.errors import ProblemError
from evolve.keys import keep, key_for

FOREIGN = "https://collects.example/v1"


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    monkeypatch.setenv("VECTOR_EVOLVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    monkeypatch.setenv("SECRET", "sk-of-another")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.mark.parametrize(
    ("url", "named", "config", "allowed", "expected"),
    [
        (FOREIGN, False, None, (), "none"),
        (FOREIGN, False, "sk-of-the-folder", (), "sk-of-the-folder"),
        (FOREIGN, False, "${SECRET}", (), "none"),
        (FOREIGN, False, "${OPENAI_API_KEY}", (), "none"),
        (FOREIGN, False, "x${SECRET}", ("SECRET",), "none"),
        (FOREIGN, False, "${SECRET}", ("SECRET",), "sk-of-another"),
        (FOREIGN, False, None, ("OPENAI_API_KEY",), "sk-of-the-user"),
        (FOREIGN, True, "${SECRET}", (), "sk-of-the-user"),
    ],
)
def test_which_key_a_server_gets(url, named, config, allowed, expected):
    said = []
    assert key_for(url, named, config, allowed, said.append) == expected
    assert not any("sk-" in line for line in said)
    if expected == "none":
        assert any("--allow-env" in line for line in said)


def test_a_host_that_the_user_names_in_the_environment_gets_the_key(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://collects.example/v2")
    assert key_for(FOREIGN, False, None, ()) == "sk-of-the-user"
    assert key_for("https://collects.example.evil/v1", False, None, ()) == "none"


def test_the_key_of_a_server_of_ours_is_found_by_its_port():
    path = keep(8011, "random")
    assert path.stat().st_mode & 0o777 == 0o600
    assert key_for("http://127.0.0.1:8011/v1", True, None, ()) == "random"
    assert key_for("http://127.0.0.1:8012/v1", True, None, ()) == "sk-of-the-user"
    assert key_for("http://127.0.0.1:8011/v1", False, None, ()) == "none"


def test_the_keys_of_a_config_are_read_unresolved(tmp_path):
    (tmp_path / "initial_program.py").write_text("x = 1\n")
    (tmp_path / "evaluator.py").write_text("def evaluate(path): return {}\n")
    (tmp_path / "config.yaml").write_text(
        "llm: {api_base: 'https://collects.example/v1', api_key: '${SECRET}', models: [{name: a}]}\n"
    )
    loaded = problems.load(tmp_path)
    assert loaded.config.api_key == "${SECRET}"
    assert "sk-of-another" not in repr(loaded)


def test_templates_lie_in_the_folder(tmp_path):
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "initial_program.py").write_text("x = 1\n")
    (folder / "evaluator.py").write_text("def evaluate(path): return {}\n")
    (folder / "config.yaml").write_text("prompt: {template_dir: ../..}\n")
    with pytest.raises(ProblemError, match="outside of the problem folder"):
        problems.load(folder).config.prompt_config()

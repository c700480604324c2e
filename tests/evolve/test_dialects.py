"""Servers that are not vLLM: ones that behave as llama.cpp's, as Ollama and as hosted ones do, over real HTTP."""

import json
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from evolve.cli import app
from evolve.dialect import context_of, folded, is_local
from evolve.errors import ContextOverflow, MutatorError
from evolve.mutator import OpenAIMutator
from tests.evolve.fake_server import FakeServer, serving

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]


def client(server, **options):
    return OpenAIMutator(server.url, **{"patience": 3, "say": lambda _: None} | options)


class LlamaCpp(FakeServer):
    """Ignores `n`; a template without a system role is an error 500; says its context; unknown fields pass."""

    models: ClassVar = {"object": "list", "data": [{"id": "q.gguf", "object": "model", "owned_by": "llamacpp", "created": 1,
                                          "meta": {"n_ctx": 4096, "n_ctx_train": 32768}}]}  # fmt: skip

    def refuse(self, body):
        if any(message["role"] == "system" for message in body["messages"]):
            return 500, {"error": {"code": 500, "message": "System role not supported", "type": "server_error"}}
        if sum(len(message["content"]) for message in body["messages"]) > 9000:
            text = "the request exceeds the available context size, try increasing it"
            return 400, {"error": {"code": 400, "message": text, "type": "exceed_context_size_error"}}
        return None

    def answer(self, path, body):
        return super().answer(path, {**body, "n": 1})


class Ollama(FakeServer):
    """Ignores `n`, gives no usage, and its finish reasons and contents may be null."""

    models: ClassVar = {
        "object": "list",
        "data": [{"id": "qwen2.5-coder:1.5b", "object": "model", "created": 1, "owned_by": "library"}],
    }

    def answer(self, path, body):
        found = super().answer(path, {**body, "n": 1}) | {"usage": None}
        found["choices"][0]["message"] |= {"reasoning": "hm"}
        found["choices"][0]["finish_reason"] = None
        return found


class Hosted(FakeServer):
    """Refuses `n` in words of its own, has no list of models, and wants `max_completion_tokens`."""

    models = None

    def refuse(self, body):
        if body.get("n", 1) != 1:
            return 400, {"error": {"message": "Only one completion choice is allowed", "type": "invalid_request_error"}}
        if "max_tokens" in body:
            text = (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            )
            return 400, {"error": {"message": text, "code": "unsupported_parameter"}}
        return None


@pytest.mark.parametrize("kind", [LlamaCpp, Ollama, Hosted])
async def test_all_completions_come_from_a_server_that_gives_one_at_a_time(kind):
    with serving(kind) as server:
        async with client(server, model="m" if kind is Hosted else None) as mutator:
            first = await mutator.sample(MESSAGES, range(4), 1, 0)
            asked = len(server.requests)
            second = await mutator.sample(MESSAGES, range(4), 1, 1)
    assert [one.text for one in first + second] == ["hello"] * 8
    assert len(server.requests) - asked == 4  # learnt: nothing is refused or wasted the second time
    assert all(request.get("n", 1) == 1 for request in server.requests[asked:])
    assert all(request.get("max_tokens", request.get("max_completion_tokens")) == 1024 for request in server.requests)


async def test_a_model_without_a_system_role_gets_it_in_the_first_message():
    with serving(LlamaCpp) as server:
        async with client(server) as mutator:
            await mutator.sample(MESSAGES, [0], 1, 0)
            assert mutator.room < 9000  # from its own n_ctx, not from the length it was trained with
    assert server.requests[-1]["messages"] == [{"role": "user", "content": "Be brief.\n\nhi"}]


async def test_a_prompt_too_long_for_llama_cpp_is_told_apart():
    with serving(LlamaCpp) as server:
        async with client(server) as mutator:
            with pytest.raises(ContextOverflow):
                await mutator.sample([{"role": "user", "content": "x" * 10_000}], [0], 1, 0)


async def test_usage_null_and_reasoning_are_taken():
    with serving(Ollama) as server:
        async with client(server) as mutator:
            (one,) = await mutator.sample(MESSAGES, [0], 1, 0)
    assert (one.text, one.prompt_tokens, one.completion_tokens) == ("hello", 0, 0)


async def test_a_refusal_for_another_reason_ends_it_with_its_first_words():
    class Never(FakeServer):
        def refuse(self, body):
            return 400, {"error": {"message": f"quota of {len(self.requests)}"}}

    with serving(Never) as server:
        async with client(server) as mutator:
            with pytest.raises(MutatorError, match="quota of 1"):
                await mutator.sample(MESSAGES, range(4), 1, 0)
    assert len(server.requests) < 10


async def test_without_a_list_of_models_one_must_be_named():
    with serving(Hosted) as server, pytest.raises(MutatorError, match="--model"):
        async with client(server):
            pass


def test_contexts_are_read_from_each_servers_list():
    assert context_of({"id": "x", "max_model_len": 8192}) == 8192
    assert context_of({"id": "x", "context_length": 131072}) == 131072
    assert context_of({"id": "x", "meta": {"n_ctx_train": 32768, "n_ctx": 4096}}) == 4096
    assert context_of({"id": "x", "meta": None, "max_model_len": None}) is None


def test_folding_keeps_everything():
    assert folded(MESSAGES) == [{"role": "user", "content": "Be brief.\n\nhi"}]
    assert folded(MESSAGES[1:]) == MESSAGES[1:]
    assert folded(MESSAGES[:1]) == MESSAGES[:1]


@pytest.mark.parametrize(
    ("url", "local"),
    [("http://127.0.0.1:8000/v1", True), ("http://[::1]:1/v1", True), ("http://localhost:11434/v1", True),
     ("http://10.0.0.5:8000/v1", False), ("https://example.org/v1", False), ("http://localhost.example.org/v1", False)],
)  # fmt: skip
def test_which_servers_are_on_this_machine(url, local):
    assert is_local(url) == local


async def test_a_remote_server_is_asked_through_the_proxy(monkeypatch):
    with serving() as proxy:
        address = proxy.url.removesuffix("/v1")
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, address)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with OpenAIMutator("http://models.invalid/v1", say=lambda _: None, patience=3) as mutator:
            (one,) = await mutator.sample(MESSAGES, [0], 1, 0)
    assert one.text == "hello"
    assert proxy.hosts == {"models.invalid"}


async def test_a_local_server_is_never_asked_through_the_proxy(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving() as server:
        async with client(server) as mutator:
            (one,) = await mutator.sample(MESSAGES, [0], 1, 0)
    assert one.text == "hello"


@pytest.mark.parametrize(
    ("kind", "told"),
    [(LlamaCpp, ["one a request", "refused; it goes", "4096 tokens"]), (Ollama, ["one a request", "taken", "not said"]),
     (FakeServer, ["several a request", "no token ids"])],
)  # fmt: skip
def test_doctor_says_what_a_server_can_do(kind, told):
    with serving(kind) as server:
        result = CliRunner().invoke(app, ["doctor", "--base-url", server.url, "--json"])
    assert result.exit_code == 0, result.output
    found = " ".join(one["found"] for one in json.loads(result.stdout))
    assert all(text in found for text in told), found


def test_doctor_says_that_no_server_answers():
    result = CliRunner().invoke(app, ["doctor", "--base-url", "http://127.0.0.1:9/v1", "--json"])
    assert result.exit_code == 3
    assert "No OpenAI-compatible server answers" in json.loads(result.stdout)[0]["advice"]

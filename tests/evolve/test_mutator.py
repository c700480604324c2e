"""The client against a real local HTTP server that fails in every way it can."""

import pytest

from evolve.errors import ContextOverflow, MutatorError
from evolve.mutator import OpenAIMutator
from tests.evolve.fake_server import serving

MESSAGES = [{"role": "user", "content": "hi"}]
TWO = "### Solution 1\n```python\nx = 1\n```\n### Solution 2\n```python\nx = 2\n```"


def client(server, **options):
    return OpenAIMutator(server.url, **{"patience": 20, "say": lambda _: None} | options)


async def test_n_completions_of_one_request():
    with serving() as server:
        async with client(server, sampling={"temperature": 0.3, "top_p": 0.9}) as mutator:
            completions = await mutator.sample(MESSAGES, range(3), 1, 42)
    (request,) = server.requests
    assert (request["n"], request["temperature"], request["top_p"], request["model"]) == (3, 0.3, 0.9, "m")
    assert "seed" not in request
    assert [one.text for one in completions] == ["hello"] * 3
    assert completions[0].token_ids is None
    assert not mutator.gives_token_ids


async def test_seeds_are_sent_where_the_server_takes_them():
    with serving() as server:
        async with client(server, takes_seeds=True) as mutator:
            (completion,) = await mutator.sample(MESSAGES, range(1), 1, 42)
    assert server.requests[0]["seed"] == completion.seed == 42


@pytest.mark.parametrize(
    "fault",
    ["close", (500, {"error": {"message": "engine dead"}}), (503, {}), (429, {"error": {"message": "slow down"}}),
     (200, b"not json"), (200, {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": []})],
    ids=["hang up", "500", "503", "429", "garbage", "no choices"],
)  # fmt: skip
async def test_a_fault_is_waited_out(fault):
    with serving(faults=[fault] * 4) as server:
        async with client(server) as mutator:
            (completion,) = await mutator.sample(MESSAGES, range(1), 1, 0)
    assert completion.text == "hello"
    assert len(server.requests) == 5


async def test_patience_ends_and_recovery_is_tried():
    recoveries = []

    async def recover():
        recoveries.append(1)

    with serving(faults=[(500, {})] * 100) as server:
        async with client(server, patience=1.5, recover=recover) as mutator:
            with pytest.raises(MutatorError, match="evolve resume"):
                await mutator.sample(MESSAGES, range(1), 1, 0)
    assert recoveries


async def test_a_server_that_says_nothing_is_asked_again():
    with serving(faults=["silent", "silent"]) as server:
        async with client(server, timeout=0.5, retries=0) as mutator:
            (completion,) = await mutator.sample(MESSAGES, range(1), 1, 0)
    assert completion.text == "hello"
    assert len(server.requests) == 3


TOO_LONG = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (3976 in the messages, 1024 in "
    "the completion). Please reduce the length of the messages or completion."
)


async def test_a_prompt_that_is_too_long_is_told_apart():
    with serving(faults=[(400, {"error": {"message": TOO_LONG, "type": "BadRequestError"}})]) as server:
        async with client(server) as mutator:
            with pytest.raises(ContextOverflow, match="4096"):
                await mutator.sample(MESSAGES, range(1), 1, 0)
    assert len(server.requests) == 1


async def test_a_refused_request_is_not_repeated():
    with serving(faults=[(400, {"error": {"message": "no such option"}})]) as server:
        async with client(server) as mutator:
            with pytest.raises(MutatorError, match="no such option"):
                await mutator.sample(MESSAGES, range(1), 1, 0)
    assert len(server.requests) == 1


async def test_no_server_or_another_model():
    with pytest.raises(MutatorError, match="evolve mutator serve"):
        async with OpenAIMutator("http://127.0.0.1:9/v1"):
            pass
    with serving() as server:
        with pytest.raises(MutatorError, match="serves m, not 'other'"):
            async with client(server, model="other"):
                pass
        with pytest.raises(MutatorError, match="plain"):
            async with client(server, way="scaffold"):
                pass


async def test_auto_changes_to_the_scaffold_when_answers_are_missing():
    said = []
    with serving(vllm=True, reply="```python\nx = 1\n```") as server:
        async with client(server, say=said.append) as mutator:
            await mutator.sample(MESSAGES, range(8), 2, 0)
            assert mutator.format == "scaffold"
    assert "0 of 8" in said[0]


async def test_auto_stays_plain_when_answers_are_there_or_only_one_is_wanted():
    with serving(vllm=True, reply=TWO) as server:
        async with client(server) as mutator:
            await mutator.sample(MESSAGES, range(8), 2, 0)
            await mutator.sample(MESSAGES, range(8), 1, 0)
            assert mutator.format == "plain"


def tokens(text):
    return [ord(character) for character in text]


async def test_the_scaffold_writes_frames_and_masks_them():
    """The model never closes its second answer's fence by itself: the frame of the third does."""
    written = {1: ("a = 1\n```", "stop"), 2: ("b = 2", "length"), 3: ("c = 3\n```", "stop")}

    def continuations(body):
        text = "".join(map(chr, body["prompt"]))
        reply, reason = written[text.count("### Solution")]
        return [(tokens(reply), reply, reason)] * body["n"]

    with serving(vllm=True) as server:
        server.continuations = continuations
        async with client(server, way="scaffold", sampling={"max_tokens": 30}) as mutator:
            completions = await mutator.sample(MESSAGES, range(2), 3, 0)
    assert len(server.requests) == 1 + 2 * 2
    assert {request["max_tokens"] for request in server.requests} == {30}
    one = completions[0]
    blocks = [f"### Solution {i}\n```python\n{code}\n```" for i, code in enumerate(("a = 1", "b = 2", "c = 3"), start=1)]
    assert one.text == "\n\n".join(blocks)
    assert one.token_ids == tokens(one.text)
    assert one.prompt_token_ids == tokens("hi")
    sampled = "".join(chr(token) for token, own in zip(one.token_ids, one.sampled, strict=True) if own)
    assert sampled == "a = 1\n```b = 2c = 3\n```"
    assert one.completion_tokens == len(sampled)
    assert all((logprob is None) is not own for logprob, own in zip(one.logprobs, one.sampled, strict=True))


async def test_the_scaffold_stops_when_the_model_ends_its_turn():
    with serving(vllm=True) as server:
        server.continuations = lambda body: [(tokens("a = 1"), "a = 1", "stop")] * body["n"]
        async with client(server, way="scaffold") as mutator:
            (completion,) = await mutator.sample(MESSAGES, range(1), 3, 0)
    assert completion.text == "### Solution 1\n```python\na = 1"


@pytest.mark.parametrize("way", ["plain", "scaffold"])
async def test_fields_that_only_the_server_knows_are_passed_on(way):
    """`--sampling top_k=20` is vLLM's; the client's own methods don't take it."""
    fields = {"temperature": 0.3, "top_k": 20, "min_p": 0.1, "chat_template_kwargs": {"enable_thinking": False}, "seed": 7}
    with serving(reply="x", vllm=True) as server:
        server.continuations = lambda body: [([1], "x\n```", "stop")] * body["n"]
        async with client(server, way=way, sampling=fields) as mutator:
            await mutator.sample([{"role": "user", "content": "hi"}], [0], 2, 1)
    assert fields.items() <= server.requests[0].items()

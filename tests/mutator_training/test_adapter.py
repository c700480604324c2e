"""An adapter's way through the real parts: served by vLLM, recorded, trained on, served again."""

import json
import shutil
import signal
import sqlite3
import subprocess
import time

import httpx2
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from evolve.errors import BadInput
from mutator_training.adapter import AdapterSpec, card, train, usable
from mutator_training.lineage import behaviour
from mutator_training.rollouts import Selection, groups
from tests.conftest import ROOT
from tests.evolve.conftest import EVOLVE
from tests.evolve.test_real import evolve, rows
from tests.mutator_training.conftest import write_letters

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


SCAFFOLD = ["--way", "scaffold", "--sampling", "max_tokens=20"]


@pytest.fixture(scope="module")
def run(tiny, docker_url, image, tmp_path_factory):
    """A search with the adapter."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    letters = write_letters(folder.parent / "letters")
    shape = ["--budget", "16", "-P", "1", "-G", "4", "-m", "2", "--seed", "1", "--no-retry", *SCAFFOLD]
    done = evolve("run", letters, "--out", folder, "--model", tiny / "tiny", "--adapter", tiny / "v1", *shape)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_served_adapter_has_the_log_probabilities_of_peft(tiny, run):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny / "tiny", dtype=torch.float32)
    found = groups(run).groups
    assert len(found) == 2
    assert all(len(group.rollouts) == 4 and group.mutator.startswith("v1-") for group in found)
    differences = {}
    for name in ("base", "adapter"):
        model = base if name == "base" else PeftModel.from_pretrained(base, tiny / "v1")
        gaps = []
        for group in found:
            for rollout in group.rollouts:
                ids = torch.tensor([[*group.prompt_ids, *rollout.token_ids]])
                with torch.no_grad():
                    logits = model(ids).logits[0, len(group.prompt_ids) - 1 : -1].float() / group.temperature
                logprobs = logits.log_softmax(-1).gather(1, torch.tensor(rollout.token_ids)[:, None])[:, 0].numpy()
                gaps.append(np.abs(logprobs - rollout.logprobs)[rollout.sampled].mean())
        differences[name] = float(np.mean(gaps))
    assert differences["adapter"] < 0.1, differences
    assert differences["base"] > 2 * differences["adapter"], differences


def test_it_is_trained_on_what_it_sampled_and_appears_whole(tiny, run, tmp_path):
    out = tmp_path / "v2"
    done = evolve("train", run, "--adapter", tiny / "v1", "--out", out, "--groups", 2, "--micro-batch", 4, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["groups"], found["group_size"], found["completions"]) == (2, 4, 8)
    assert found["options"]["temperature"] == 1.0
    assert len(found["steps"]) == 1
    assert found["steps"][0]["kl"] > 0.01  # to the base, not to the adapter that it starts from
    assert {"README.md", "adapter_config.json", "adapter_model.safetensors", "training.json"} <= {
        p.name for p in out.iterdir()
    }
    assert not (out / "ref").exists()
    assert not [path for path in tmp_path.iterdir() if "unborn" in path.name or "spec" in path.name]
    assert "trained with `vpo`" in (out / "README.md").read_text()
    again = evolve("train", run, "--out", out)
    assert again.returncode == 2
    assert "never overwritten" in " ".join(again.stderr.split())


def test_two_processes_make_the_same_step_as_one(tiny, run, tmp_path):
    """Each takes whole groups; what they log is of all of them."""
    weights, steps = [], []
    for processes in (1, 2):
        out = tmp_path / f"of{processes}"
        given = ["--groups", 2, "--micro-batch", 4, "--processes", processes, "--learning-rate", "1e-3"]
        done = evolve("train", run, "--adapter", tiny / "v1", "--out", out, *given, "--json")
        assert done.returncode == 0, done.stderr
        steps.append(json.loads(done.stdout)["steps"][0])
        weights.append(load_file(out / "adapter_model.safetensors"))
    assert steps[0]["rollouts/set_reward"] == pytest.approx(steps[1]["rollouts/set_reward"], abs=1e-6)
    assert steps[0]["rollouts/answers"] == steps[1]["rollouts/answers"] == 16
    start = load_file(tiny / "v1" / "adapter_model.safetensors")
    moved = [(weights[0][name].float() - start[name].float()).abs().mean() for name in start]
    apart = [(weights[0][name].float() - weights[1][name].float()).abs().mean() for name in start]
    assert sum(moved) > 0
    assert sum(apart) < 0.2 * sum(moved), (sum(apart), sum(moved))


def test_a_training_that_fails_says_why_and_leaves_no_adapter(tiny, run, tmp_path):
    done = evolve("train", run, "--out", tmp_path / "v2", "--trainer", "no_such_option=1")
    assert done.returncode == 3
    assert "no_such_option" in done.stderr
    assert not (tmp_path / "v2").exists()


def test_rollouts_are_of_one_mutator_unless_asked_otherwise(run):
    base, served, _ = behaviour([run])
    assert base.endswith("tiny")
    assert served.startswith("v1-")
    assert groups(run, Selection(mutator="another")).left_out == {"of another mutator": 8}
    last = rows(run, "select max(id) from prompt")[0][0]
    assert len(groups(run, Selection(after=last - 1)).groups) == 1
    cut = groups(run, Selection(keep_cut=False))
    assert sum(len(group.rollouts) for group in cut.groups) + sum(cut.left_out.values()) == 8
    spec = AdapterSpec([str(run)], "b", "b", "o", selection={"mutator": "another"})
    with pytest.raises(BadInput, match="no group of rollouts"):
        usable(spec)
    with pytest.raises(BadInput, match="takes 2 groups"):
        train(AdapterSpec([str(run)], "b", "b", str(run / "no"), processes=3), print)


def test_a_run_without_token_ids_is_refused(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    connection = sqlite3.connect(tmp_path / "run" / "run.sqlite")
    connection.execute("update completion set token_ids = null")
    connection.commit()
    connection.close()
    with pytest.raises(BadInput, match="has no token ids"):
        train(AdapterSpec([str(tmp_path / "run")], "b", "b", str(tmp_path / "out")), print)


def test_a_merged_model_gives_what_base_and_adapter_give_together(tiny, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    done = evolve("mutator", "merge", tiny / "v1", "--model", tiny / "tiny", "--out", tmp_path / "merged")
    assert done.returncode == 0, done.stderr
    ids = torch.tensor([[5, 6, 7, 8]])
    base = AutoModelForCausalLM.from_pretrained(tiny / "tiny", dtype=torch.float32)
    with torch.no_grad():
        apart = base(ids).logits
        together = PeftModel.from_pretrained(base, tiny / "v1")(ids).logits
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)(ids).logits
    assert (merged - together).abs().mean() < 0.1 * (together - apart).abs().mean()
    assert (tmp_path / "merged" / "tokenizer.json").is_file()
    again = evolve("mutator", "merge", tiny / "v1", "--model", tiny / "tiny", "--out", tmp_path / "merged")
    assert again.returncode == 2


def test_a_card_without_steps():
    result = dict.fromkeys(("base", "estimator", "completions", "groups", "group_size", "sampled_tokens", "train_seconds",
                            "trained_tokens", "tokens_per_second", "peak_memory_mb", "options", "left_out"), 1)  # fmt: skip
    assert "None, None" in card(result | {"runs": [], "steps": []})


def killed_when(condition, *arguments):
    """Run `evolve` and end it by kill -9 as soon as a condition holds; nothing of it may be left after some seconds."""
    process = subprocess.Popen([EVOLVE, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 400
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()


def test_a_search_refreshes_its_mutator_whatever_kills_it(tiny, docker_url, image, tmp_path):
    """Kill -9 while it trains, when an adapter is published, when it is swapped in; then to the end."""
    run = tmp_path / "run"
    shape = ["--budget", "24", "-P", "1", "-G", "4", "-m", "2", "--seed", "1", "--no-retry", *SCAFFOLD]
    given = ["run", write_letters(tmp_path / "letters"), "--out", run, "--model", tiny / "tiny", *shape]
    given += ["--train", "vpo", "--training", "micro_batch=4"]

    def states():
        try:
            return dict(rows(run, "select name, state from mutator"))
        except sqlite3.OperationalError:
            return {}

    killed_when((run / "adapters" / ".v1.unborn").is_dir, *given)
    assert "run-v1" not in states()
    killed_when((run / "adapters" / "v1").is_dir, "resume", run)
    assert (run / "adapters" / "v1" / "training.json").is_file()
    killed_when(lambda: rows(run, "select 1 from event where kind = 'refreshed'"), "resume", run)
    done = evolve("resume", run)
    assert done.returncode == 0, done.stderr
    found = json.loads(evolve("show", run, "mutators", "--json").stdout)
    assert [row["state"] for row in found].count("serving") == 1
    assert "candidate" not in {row["state"] for row in found}
    sampled = rows(run, "select p.id, m.name, m.adapter, count(*) from completion c join prompt p on p.id = c.prompt_id "
                        "join mutator m on m.id = c.mutator_id group by 1, 2 order by 1")  # fmt: skip
    assert [(prompt, count) for prompt, _, _, count in sampled] == [(1, 4), (2, 4), (3, 4)]
    refreshed = [json.loads(data) for (data,) in rows(run, "select data from event where kind = 'refreshed' order by id")]
    assert len(refreshed) >= 2
    served = {1: "tiny"}  # of a random model's versions the gate rejects some, as its level says
    for each in refreshed:
        before = served[each["prompt"]]
        served[each["prompt"] + 1] = f"run-{each['version']}" if each["accepted"] else before
    assert [(prompt, name) for prompt, name, _, _ in sampled] == [(prompt, served[prompt]) for prompt in (1, 2, 3)]
    for adapter in (adapter for _, _, adapter, _ in sampled if adapter):
        place = run / "adapters" / adapter.split("/")[-1]
        assert {"adapter_model.safetensors", "training.json"} <= {path.name for path in place.iterdir()}
    assert not list((run / "adapters").glob(".*"))
    assert rows(run, "pragma integrity_check") == [("ok",)]
    assert all(each["gate"]["completions"] >= 4 and each["gate"]["tokens"] > 0 for each in refreshed)
    cost = json.loads(evolve("show", run, "cost", "--json").stdout)
    assert cost["refreshes"] >= 2
    assert cost["trained_tokens"] > 1000
    first = sampled[1][1]
    assert evolve("mutator", "use", run, first).returncode == 0
    states_now = {row["name"]: row["state"] for row in json.loads(evolve("show", run, "mutators", "--json").stdout)}
    assert [name for name, state in states_now.items() if state == "serving"] == [first]


async def test_a_server_that_was_ended_for_room_serves_the_same_again(tiny, tmp_path):
    """The way of a GPU without room beside the server, with a real server."""
    from evolve.server import VllmServer

    options = {"enable-lora": True, "max-lora-rank": 16, "max-loras": 3}
    async with VllmServer(tiny / "tiny", "tiny", tmp_path / "server.log", options=options) as server:
        assert await server.make_room(1.0) == "halted"
        await server.go_on()
        assert await server.healthy()
        await server.load_adapter("a", tiny / "v1")
        server._cuda, server.free_gpu_megabytes = True, lambda: 5000.0
        assert await server.make_room(4000.0) == "beside"
        assert await server.make_room(6000.0) == "ended"
        assert not await server.healthy()
        server._cuda = False
        await server.go_on()
        assert await server.healthy()
        async with httpx2.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {server.key}"}) as client:
            served = (await client.get(f"{server.base_url}/models")).json()["data"]
        assert {one["id"] for one in served} == {"tiny", "a"}


def test_training_on_problems_goes_on_after_kill_9(tiny, docker_url, image, tmp_path):
    out = tmp_path / "adapter"
    problems = [write_letters(tmp_path / name) for name in ("letters", "others")]
    given = ["train", *problems, "--out", out, "--model", tiny / "tiny"]
    given += [
        "--estimator",
        "grpo",
        "-m",
        "2",
        "--steps",
        "2",
        "-P",
        "2",
        "-G",
        "4",
        "--micro-batch",
        "8",
        "--sampling",
        "max_tokens=32",
    ]
    training = tmp_path / "adapter.training"
    killed_when((training / "adapters" / ".v2.unborn").is_dir, *given)
    first = (training / "adapters" / "v1" / "adapter_model.safetensors").read_bytes()
    done = evolve(*given, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["groups"], found["completions"], found["answers"]) == (4, 16, 32)
    assert [row["step"] for row in found["steps"]] == [1, 2]
    assert (training / "adapters" / "v1" / "adapter_model.safetensors").read_bytes() == first
    assert [(training / "adapters" / version / "optimizer.pt").exists() for version in ("v1", "v2")] == [False, True]
    assert not (out / "optimizer.pt").exists()
    for name in ("letters", "others"):
        names = rows(
            training / "runs" / name, "select m.name from completion c join mutator m on m.id = c.mutator_id order by c.id"
        )
        assert [mutator for (mutator,) in names] == ["tiny"] * 4 + [f"{tmp_path.name}-adapter.training-v1"] * 4
    assert list((training / "tensorboard").iterdir())
    ids = torch.tensor([[5, 6, 7, 8]])
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny / "tiny", dtype=torch.float32)
    with torch.no_grad():
        before = base(ids).logits
        after = PeftModel.from_pretrained(base, out)(ids).logits
    assert all(row["rollouts/tied_groups"] < 1 for row in found["steps"])
    assert not torch.equal(before, after)


def test_groups_without_signal_train_nothing(tiny, docker_url, image, tmp_path):
    """A random model writes no program: a training on problems goes on with the weights as they are."""
    out = tmp_path / "adapter"
    given = [
        "train",
        ROOT / "problems/csv_line",
        "--out",
        out,
        "--model",
        tiny / "tiny",
        "--estimator",
        "grpo",
        "--steps",
        1,
    ]
    done = evolve(*given, "-P", 1, "-G", 2, "--sampling", "max_tokens=8", "--json")
    assert done.returncode == 0, done.stderr
    assert "no group has signal" in done.stderr
    assert json.loads(done.stdout)["steps"] == []
    for name, value in load_file(out / "adapter_model.safetensors").items():
        assert "lora_B" not in name or not value.any()

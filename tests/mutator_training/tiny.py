"""A model of some thousand parameters that writes four letters, and a verifier with two objectives."""

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from mutator_training.rollouts import Group, Rollout

WORDS = {"<pad>": 0, "<s>": 1, "</s>": 2, "a": 3, "b": 4, "c": 5}
SCORES = {3: (1.0, 0.0), 4: (0.0, 1.0), 5: (0.6, 0.6)}
ANSWERS = 4
PROMPT = np.array([1])


def tokenizer():
    inner = Tokenizer(models.WordLevel(WORDS, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def model(seed=0):
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


def scores(ids):
    rows = [SCORES.get(int(token), (0.0, 0.0)) for token in ids[:ANSWERS]]
    return np.array(rows).reshape(-1, 2)


@torch.no_grad()
def sample(policy, count, seed):
    """A group of completions of four tokens, with their log-probabilities; a function of weights and seed."""
    generator = torch.Generator().manual_seed(seed)
    was_training = policy.training
    policy.eval()
    ids = torch.full((count, 1), 1)
    logprobs = []
    for _ in range(ANSWERS):
        logits = policy(ids).logits[:, -1].float().log_softmax(-1)
        chosen = torch.multinomial(logits.exp(), 1, generator=generator)
        logprobs.append(logits.gather(1, chosen))
        ids = torch.cat([ids, chosen], 1)
    policy.train(was_training)
    return ids[:, 1:].numpy(), torch.cat(logprobs, 1).numpy()


def group(policy, count=16, seed=0):
    ids, logprobs = sample(policy, count, seed)
    rollouts = [
        Rollout(
            i, ids[i], logprobs[i].astype(float), np.ones(ANSWERS, dtype=bool), scores(ids[i]), False, np.arange(ANSWERS)
        )
        for i in range(count)
    ]
    return Group(1, 1, "tiny", PROMPT, rollouts, ANSWERS)


def best_of_m(policy, count=512):
    """Mean over completions of max_i w.r_i, averaged over many w: the exact set reward, sampled."""
    ids, _ = sample(policy, count, 12345)
    weights = np.random.default_rng(0).dirichlet(np.ones(2), 256)
    return float(np.mean([(scores(row) @ weights.T).max(axis=0).mean() for row in ids]))

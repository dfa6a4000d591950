"""Speculation against what others compute: mlx-lm's own speculative generation for a drafting model, and
the head for multi-token prediction written out in MLX, row by row as the specification has it. Not only
the tokens are compared but which drafts were right.
"""
import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import speculative_generate_step
from tokenizers import Tokenizer

import draft_models
import oracle
import recipes
import server as servers

PROMPT = [(37 * i + 11) % 500 for i in range(30)]
STOCK = ("--kernels", "mlx", "--dtype", "float32")
TOKENS = 48


class Rounds:
    """What the server must count: drafts as far as the reply's length allows."""

    def __init__(self):
        self.rounds = self.drafted = self.accepted = 0
        self.accepted_at = []

    def add(self, num_drafted, num_accepted):
        self.rounds += 1
        self.drafted += num_drafted
        self.accepted += num_accepted
        self.accepted_at += [0] * (num_accepted - len(self.accepted_at))
        for i in range(num_accepted):
            self.accepted_at[i] += 1

    def check(self, stats):
        want = dict(rounds=self.rounds, drafted=self.drafted, accepted=self.accepted, accepted_at=self.accepted_at)
        assert {key: stats[key] for key in want} == want


def speak(folder, log, draft, depth, *flags, prompt=PROMPT):
    """The greedy reply's text and what the server says of its drafts."""
    server = servers.start_real(log, folder, "--draft", draft, "--draft-depth", str(depth), *STOCK, *flags)
    try:
        reply = server.completion(prompt, max_tokens=TOKENS, temperature=0, ignore_eos=True)
        assert reply.status == 200, reply
        return reply.json()["choices"][0]["text"], server.stats()["draft"]
    finally:
        server.stop()


def text_of(folder, ids):
    return Tokenizer.from_file(str(folder / "tokenizer.json")).decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("depth", [1, 3, 6])
def test_a_drafting_model_as_in_mlx_lm(depth, tmp_path):
    """The draft is the target in 4 bits, so it is right often and not always."""
    target = draft_models.target(tmp_path / "target", "llama-untied-gqa")
    draft = draft_models.target(tmp_path / "draft", "llama-untied-gqa", "q4-f32")
    model, small = oracle.load(target), oracle.load(draft)
    _, ids = oracle.greedy(model, PROMPT, TOKENS + 8)
    # mlx-lm drafts from the last token of its prompt on; ours draws that one first.
    first = mx.array(ids[:len(PROMPT) + 1])
    steps = speculative_generate_step(first, model, small, num_draft_tokens=depth, max_tokens=TOKENS + 4)
    flags = [(int(token), from_draft) for token, _, from_draft in steps]
    assert [token for token, _ in flags[:TOKENS - 1]] == ids[len(PROMPT) + 1:][:TOKENS - 1].tolist()

    want, drawn, at = Rounds(), 1, 0
    while drawn < TOKENS:
        k = 0
        while k < depth and flags[at + k][1]:
            k += 1
        room = TOKENS - drawn - 1
        if room > 0:
            want.add(min(depth, room), min(k, room))
        drawn += min(k, room) + 1
        at += k + 1
    assert 0 < want.accepted < want.drafted
    text, stats = speak(target, tmp_path / "log", f"model:{draft}", depth)
    assert text == text_of(target, ids[len(PROMPT):][:TOKENS].tolist())
    want.check(stats)


class Head:
    """Section 5.5 of the specification, without caches: every call computes every row."""

    def __init__(self, tensors, config):
        self.w = {name.removeprefix("mtp."): mx.array(value) for name, value in tensors.items()}
        self.c = config

    def rms(self, x, name):
        return mx.fast.rms_norm(x, self.w[f"{name}.weight"], self.c["rms_norm_eps"])

    def linear(self, x, name):
        return x @ self.w[f"{name}.weight"].T

    def __call__(self, embedded, hidden):
        heads, kv, dim = (self.c[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
        rows, at = embedded.shape[0], "layers.0."
        x = self.linear(mx.concatenate([self.rms(embedded, "pre_fc_norm_embedding"),
                                        self.rms(hidden, "pre_fc_norm_hidden")], -1), "fc")
        xn = self.rms(x, at + "input_layernorm")
        q, gate = mx.split(self.linear(xn, at + "self_attn.q_proj").reshape(rows, heads, 2 * dim), 2, axis=-1)
        k = self.linear(xn, at + "self_attn.k_proj").reshape(rows, kv, dim)
        v = self.linear(xn, at + "self_attn.v_proj").reshape(rows, kv, dim)
        rope = self.c["rope_parameters"]

        def turned(y, name):
            y = self.rms(y, at + name).transpose(1, 0, 2)[None]
            return mx.fast.rope(y, int(dim * rope["partial_rotary_factor"]), traditional=False,
                                base=rope["rope_theta"], scale=1.0, offset=0)

        a = mx.fast.scaled_dot_product_attention(turned(q, "self_attn.q_norm"), turned(k, "self_attn.k_norm"),
                                                 v.transpose(1, 0, 2)[None], scale=dim**-0.5, mask="causal")
        a = a[0].transpose(1, 0, 2).reshape(rows, -1) * mx.sigmoid(gate.reshape(rows, -1))
        h = x + self.linear(a, at + "self_attn.o_proj")
        n = self.rms(h, at + "post_attention_layernorm")
        gated = self.linear(n, at + "mlp.gate_proj")
        y = h + self.linear(gated * mx.sigmoid(gated) * self.linear(n, at + "mlp.up_proj"), at + "mlp.down_proj")
        return self.rms(y, "norm")


def hidden_states(model, ids, before_norm):
    """Of the target, at every position; and its own modules for embedding and logits."""
    text = model.language_model
    seen, norm = [], text.model.norm

    class Spy:
        def __call__(self, x):
            seen.append(x if before_norm else norm(x))
            return norm(x)

    text.model.norm = Spy()
    try:
        model(mx.array([ids]))
    finally:
        text.model.norm = norm
    return seen[0][0], text.model.embed_tokens, text.lm_head


def mtp_rounds(model, head, ids, prompt_len, depth, before_norm):
    hidden, embed, lm_head = hidden_states(model, ids, before_norm)
    rows = [(ids[p + 1], hidden[p]) for p in range(prompt_len - 1)]
    want, pending, drawn = Rounds(), prompt_len, 1
    while drawn < TOKENS:
        n = min(depth, TOKENS - drawn - 1)
        drafts, work, feed = [], list(rows), (ids[pending], hidden[pending - 1])
        for _ in range(n):
            work.append(feed)
            out = head(embed(mx.array([token for token, _ in work])), mx.stack([h for _, h in work]))[-1]
            drafts.append(int(mx.argmax(lm_head(out))))
            feed = (drafts[-1], out)
        k = 0
        while k < n and drafts[k] == ids[pending + 1 + k]:
            k += 1
        if n > 0:
            want.add(n, k)
        rows = work[:pending + k]
        if k == n:
            rows.append((ids[pending + k], hidden[pending + k - 1]))
        pending, drawn = pending + k + 1, drawn + k + 1
    return want


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("before_norm", [True, False])
def test_the_head_for_multi_token_prediction(depth, before_norm, tmp_path):
    folder = draft_models.shifting_target(tmp_path / "model", 0.6, tmp_path / "head")
    config = recipes.FAMILIES["qwen3.5"]
    head = Head(draft_models.head_tensors(config, draft_models.head_rng()), config)
    model = oracle.load(folder)
    _, ids = oracle.greedy(model, PROMPT, TOKENS)
    ids = ids.tolist()
    want = mtp_rounds(model, head, ids, len(PROMPT), depth, before_norm)
    assert 0 < want.accepted < want.drafted
    draft = f"mtp:{tmp_path / 'head'}" + ("" if before_norm else ",hidden=final_norm")
    text, stats = speak(folder, tmp_path / "log", draft, depth)
    assert text == text_of(folder, ids[len(PROMPT):][:TOKENS])
    want.check(stats)


def test_the_two_readings_differ(tmp_path):
    """Otherwise the option above would show nothing."""
    folder = draft_models.shifting_target(tmp_path / "model", 0.6, tmp_path / "head")
    config = recipes.FAMILIES["qwen3.5"]
    head = Head(draft_models.head_tensors(config, draft_models.head_rng()), config)
    model = oracle.load(folder)
    ids = oracle.greedy(model, PROMPT, TOKENS)[1].tolist()
    before, _, _ = hidden_states(model, ids, True)
    after, embed, _ = hidden_states(model, ids, False)
    a, b = (np.array(head(embed(mx.array(ids[1:])), h[:-1])) for h in (before, after))
    assert np.abs(a - b).max() > 1e-3

"""Drafters of blocks against their equations, written out in numpy without caches: not only that the text is
the target's own, but how many drafts went out in each round and which of them were right.
"""
import mlx.core as mx
import numpy as np
import pytest

import block_drafters
import draft_models
import oracle
import recipes
from test_speculative import PROMPT, TOKENS, Rounds, speak, text_of


def rms(x, weight, eps=1e-6):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(eps)) * weight


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)))


def attend(q, k, v, scale):
    """[G, H, D] over [S, H, D]: everything is seen."""
    scores = np.einsum("ghd,shd->hgs", q, k) * np.float32(scale)
    return np.einsum("hgs,shd->ghd", softmax(scores), v)


class Target:
    """Of a model of mlx-lm: its greedy ids, and what its layers said at every position."""

    def __init__(self, folder, taps, prompt=PROMPT):
        model = oracle.load(folder)
        self.top = getattr(model, "language_model", model)
        self.inner = self.top.model
        _, ids = oracle.greedy(model, prompt, TOKENS)
        self.ids, self.states = ids.tolist(), {}
        layers, norm = self.inner.layers, self.inner.norm
        self.inner.layers = [Spy(layer, self.states, i) for i, layer in enumerate(layers)]
        self.inner.norm = Spy(norm, self.states, len(layers))
        try:
            model(mx.array([self.ids]))
        finally:
            self.inner.layers, self.inner.norm = layers, norm
        self.taps = np.concatenate([self.states[i] for i in taps], -1)

    def embed(self, ids):
        return np.array(self.inner.embed_tokens(mx.array(ids)))

    def head(self, hidden):
        hidden = mx.array(hidden)
        tied = not hasattr(self.top, "lm_head")
        out = self.inner.embed_tokens.as_linear(hidden) if tied else self.top.lm_head(hidden)
        cap = getattr(self.top, "final_logit_softcapping", None)
        return np.array(out if cap is None else mx.tanh(out / cap) * cap)


class Spy:
    def __init__(self, module, states, index):
        self.module, self.states, self.index = module, states, index

    def __getattr__(self, name):
        return getattr(self.module, name)

    def __call__(self, *args, **kwargs):
        out = self.module(*args, **kwargs)
        self.states[self.index] = np.array(out[0] if isinstance(out, tuple) else out)[0]
        return out


class Dspark:
    """Section 5.4 of the specification. `blind`: a context of nothing, to see what it is worth."""

    def __init__(self, document, tensors, target, blind=False):
        self.c, self.w, self.target, self.blind = document["config"], tensors, target, blind

    def block(self, context, anchor):
        w, d = self.w, self.c["dDraft"]
        heads = (-1, self.c["nHeads"], d // self.c["nHeads"])
        c = rms(context @ w["W_c"], w["ctx_norm"])
        if self.blind:
            c = c[:0]
        first = self.target.embed([anchor]) @ w["tok_proj"]
        x = np.concatenate([first, w.get("mask_emb", first[:0])]) + w["block_pos"]
        for i in range(self.c["nLayers"]):
            p = {name: w[f"bb.{i}.{name}"] for name in ("attn_norm", "ff_norm", *"qkvo", "gate", "up", "down")}
            n = rms(x, p["attn_norm"])
            seen = np.concatenate([rms(c, p["attn_norm"]), n])
            a = attend((n @ p["q"]).reshape(heads), (seen @ p["k"]).reshape(heads), (seen @ p["v"]).reshape(heads),
                       heads[2]**-0.5)
            x = x + a.reshape(-1, d) @ p["o"]
            n = rms(x, p["ff_norm"])
            x = x + (gelu(n @ p["gate"]) * (n @ p["up"])) @ p["down"]
        x = rms(x, w["out_norm"])
        return x, self.target.head(x @ w["out_proj"])

    def __call__(self, context, anchor, n, least):
        w, drafts, state = self.w, [], None
        x, logits = self.block(context, anchor)
        for j in range(min(n, self.c["gamma"])):
            e = w["markov.w1"][drafts[-1] if drafts else anchor]
            if self.c["seqHead"] == "markov":
                bias = e @ w["markov.w2"]
            else:
                state = np.tanh((0 if state is None else state @ w["rnn.wH"]) + e + w["rnn.bH"])
                bias = state @ w["rnn.wO"]
            sure = sigmoid(np.concatenate([x[j], e]) @ w["conf.w"] + w["conf.b"])[0]
            threshold = self.c["sts"]["thresholds"][j] if "sts" in self.c else least
            if j > 0 and sure < threshold:
                break
            drafts.append(int(np.argmax(logits[j] + bias)))
        return drafts


def rounds(target, drafter, depth, least=0.0, prompt_len=len(PROMPT)):
    """What the server must count."""
    ids, want, pending, drawn = target.ids, Rounds(), prompt_len, 1
    while drawn < TOKENS:
        n, k = min(depth, TOKENS - drawn - 1), 0
        drafts = drafter(target.taps[:pending], ids[pending], n, least) if n > 0 else []
        while k < len(drafts) and drafts[k] == ids[pending + 1 + k]:
            k += 1
        if drafts:
            want.add(len(drafts), k)
        pending, drawn = pending + k + 1, drawn + k + 1
    return want


def counts(want):
    return want.rounds, want.drafted, want.accepted, want.accepted_at


def shifting(root):
    return draft_models.shifting_target(root, 0.6), recipes.FAMILIES["qwen3.5"]


def of_family(name, peaked=1.0):
    return lambda root: (draft_models.target(root, name, peaked=peaked), recipes.FAMILIES[name])


# A target, taps of it (its number of layers: after the final norm), and how strong the drafter's head is.
TARGETS = {
    "qwen3.5": (shifting, (3, 0, 5), 0.5),
    "llama": (of_family("llama-untied-gqa"), (2,), 0.15),
    "gemma3": (of_family("gemma3"), (1, 3), 0.2),
    "gemma4": (of_family("gemma4"), (6, 1, 4), 1.2),  # soft-capped logits
}


def prepare(root, name, prompt=PROMPT, **settings):
    build, taps, strength = TARGETS[name]
    folder, config = build(root / "target")
    target = Target(folder, taps, prompt)
    settings = dict(strength=strength, after=block_drafters.follows(target.ids)) | settings
    _, document, tensors = block_drafters.dspark(root / "drafter", config, taps, **settings)
    return folder, target, document, tensors


@pytest.mark.parametrize("depth", [1, 3, 6])
@pytest.mark.parametrize("head", ["markov", "rnn"])
@pytest.mark.parametrize("name", TARGETS)
def test_dspark(name, head, depth, tmp_path):
    folder, target, document, tensors = prepare(tmp_path, name, seqHead=head)
    want = rounds(target, Dspark(document, tensors, target), depth)
    assert 0 < want.accepted < want.drafted, counts(want)
    text, stats = speak(folder, tmp_path / "log", f"dspark:{tmp_path / 'drafter'}", depth)
    assert text == text_of(folder, target.ids[len(PROMPT):][:TOKENS])
    want.check(stats)


@pytest.mark.parametrize("thresholds", [None, [0.99, 0.3, 0.6, 0.2]])
@pytest.mark.parametrize("head", ["markov", "rnn"])
def test_dspark_leaves_out_what_it_doubts(head, thresholds, tmp_path):
    """Calibrated thresholds count before the option; the first draft always goes out."""
    folder, target, document, tensors = prepare(tmp_path, "qwen3.5", seqHead=head, thresholds=thresholds,
                                                variant="dflash")
    drafter = Dspark(document, tensors, target)
    want = rounds(target, drafter, 4, 0.6)
    everything = rounds(target, Dspark(document | dict(config=dict(document["config"], sts=dict(
        thresholds=[0] * 4))), tensors, target), 4)
    assert want.rounds < want.drafted < everything.drafted, (counts(want), counts(everything))
    text, stats = speak(folder, tmp_path / "log", f"dspark:{tmp_path / 'drafter'},min_confidence=0.6", 4)
    assert text == text_of(folder, target.ids[len(PROMPT):][:TOKENS])
    want.check(stats)


def test_a_block_of_one(tmp_path):
    folder, target, document, tensors = prepare(tmp_path, "qwen3.5", gamma=1, layers=1, noise=1.0)
    want = rounds(target, Dspark(document, tensors, target), 1)
    assert 0 < want.accepted < want.drafted
    _, stats = speak(folder, tmp_path / "log", f"dspark:{tmp_path / 'drafter'}", 3)
    want.check(stats)


def test_long_prompts_go_in_by_pieces(tmp_path):
    """A context that is longer than a page and was never there at once."""
    prompt = [(37 * i + 11) % 500 for i in range(201)]
    folder, target, document, tensors = prepare(tmp_path, "qwen3.5", prompt=prompt)
    want = rounds(target, Dspark(document, tensors, target), 4, prompt_len=len(prompt))
    assert 0 < want.accepted < want.drafted, counts(want)
    text, stats = speak(folder, tmp_path / "log", f"dspark:{tmp_path / 'drafter'}", 4, "--prefill-chunk", "19",
                        prompt=prompt)
    assert text == text_of(folder, target.ids[len(prompt):][:TOKENS])
    want.check(stats)


@pytest.mark.parametrize("name", TARGETS)
def test_contexts_matter(name, tmp_path):
    """Otherwise the tests above would show little of them."""
    _, target, document, tensors = prepare(tmp_path, name)
    seeing, blind = (rounds(target, Dspark(document, tensors, target, blind), 6) for blind in (False, True))
    assert counts(seeing) != counts(blind)
    order = [*range(document["dims"]["hiddenSize"], target.taps.shape[1]), *range(document["dims"]["hiddenSize"])]
    if len(document["config"]["tapLayers"]) > 1:
        target.taps = target.taps[:, order]
        assert counts(rounds(target, Dspark(document, tensors, target), 6)) != counts(seeing)

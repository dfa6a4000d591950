"""Drafters of blocks for the laws of speculation: tiny ones with random weights, whose small head says of
most tokens what follows them, so that drafts are right now and then."""
import json

import numpy as np
from safetensors.numpy import save_file

import recipes

GAMMA = 4  # drafts in a block, unless a test says otherwise

def matrix(rng, *shape, scale=1.0):
    return (scale * rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def around_one(rng, size):
    return rng.uniform(0.7, 1.3, size).astype(np.float32)


def one_later():
    """Token t is followed by t + 1."""
    return np.roll(np.arange(recipes.VOCAB), -1)


def follows(ids):
    """What followed each token in `ids`, where it last stood; elsewhere t + 1."""
    after = one_later()
    for token, following in zip(ids, ids[1:]):
        after[token] = following
    return after


def bias_rows(codes, after, strength):
    """[V, r] whose row i agrees with the codes of the tokens that i follows."""
    rows = np.zeros_like(codes)
    np.add.at(rows, after, np.float32(strength) * codes)
    return rows


def dspark(folder, config, taps, *, gamma=GAMMA, seqHead="markov", after=None, strength=1.0, noise=0.5, layers=2,
           width=48, heads=4, rank=32, variant="dspark", thresholds=None, seed=31, edit=None):
    """dspark.json and model.safetensors for a target of this config. noise: of the block's own logits.
    edit: called with both before they are written."""
    rng = np.random.default_rng(seed)
    hidden, vocab, ffn = config["hidden_size"], config["vocab_size"], 2 * width
    codes = rng.standard_normal((vocab, rank)).astype(np.float32)
    after = one_later() if after is None else after
    tensors = {
        "W_c": matrix(rng, len(taps) * hidden, width), "ctx_norm": around_one(rng, width),
        "tok_proj": matrix(rng, hidden, width), "block_pos": matrix(rng, gamma, width, scale=2.0),
        "out_norm": around_one(rng, width), "out_proj": matrix(rng, width, hidden, scale=noise),
        "markov.w1": codes,
        "conf.w": matrix(rng, width + rank, 1, scale=2.0), "conf.b": np.full(1, 0.3, np.float32)}
    if gamma > 1:
        tensors["mask_emb"] = matrix(rng, gamma - 1, width, scale=2.0)
    if seqHead == "markov":
        tensors["markov.w2"] = bias_rows(codes, after, strength).T.copy()
    else:
        tensors["rnn.wH"] = matrix(rng, rank, rank, scale=0.5)
        tensors["rnn.bH"] = (0.1 * rng.standard_normal(rank)).astype(np.float32)
        tensors["rnn.wO"] = bias_rows(np.tanh(codes), after, 1.5 * strength).T.copy()
    for i in range(layers):
        at = f"bb.{i}."
        tensors |= {at + name: around_one(rng, width) for name in ("attn_norm", "ff_norm")}
        tensors |= {at + name: matrix(rng, width, width, scale=4.0 if name == "o" else 1.5) for name in "qkvo"}
        tensors |= {at + "gate": matrix(rng, width, ffn), at + "up": matrix(rng, width, ffn),
                    at + "down": matrix(rng, ffn, width)}
    settings = dict(gamma=gamma, dDraft=width, nLayers=layers, nHeads=heads, markovRank=rank, ffMult=2,
                    tapLayers=list(taps), seqHead=seqHead)
    if thresholds is not None:
        settings["sts"] = dict(thresholds=list(thresholds), target=0.9, samples=100)
    document = dict(kind="dspark-drafter", variant=variant, version=1, target_id="tiny", config=settings,
                    dims=dict(hiddenSize=hidden, vocabSize=vocab, eps=1e-6), param_names=sorted(tensors))
    if edit is not None:
        edit(document, tensors)
    folder.mkdir(parents=True)
    (folder / "dspark.json").write_text(json.dumps(document))
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()},
              folder / "model.safetensors", metadata={"format": "mlx"})
    return folder, document, tensors

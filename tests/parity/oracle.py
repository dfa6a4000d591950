"""What mlx-lm computes, on this machine, in this run: the oracle is never a stored file."""
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)


def to_numpy(logits):
    return np.array(logits.astype(mx.float32))


def greedy(model, prompt, steps, chunk=None, make_cache=make_prompt_cache):
    """Logits [P + steps, V] and ids [P + steps + 1]: row i follows ids[:i + 1]."""
    cache = make_cache(model)
    rows, ids = [], list(prompt)
    chunk = chunk or len(prompt)
    for at in range(0, len(prompt), chunk):
        logits = model(mx.array([prompt[at:at + chunk]]), cache=cache)
        rows.append(to_numpy(logits)[0])
    for _ in range(steps):
        ids.append(int(rows[-1][-1].argmax()))
        logits = model(mx.array([[ids[-1]]]), cache=cache)
        rows.append(to_numpy(logits)[0])
    ids.append(int(rows[-1][-1].argmax()))
    return np.concatenate(rows), np.array(ids, np.int32)


def load(folder: Path):
    model, _ = load_model(folder)
    return model

"""Tiny random checkpoints, built by mlx-lm itself, one row per case of a family's table.

A family adds a row to FAMILIES; every test over the table then covers it.
"""
import json
import os
import shutil
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.utils import _get_classes, save_config, save_model

VOCAB = 512

LLAMA = dict(model_type="llama", hidden_size=128, num_hidden_layers=3, intermediate_size=256,
             num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=VOCAB,
             rope_theta=10000.0, max_position_embeddings=2048, tie_word_embeddings=False)

LLAMA3_ROPE = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=64)
YARN_ROPE = dict(type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=32,
                 beta_slow=1)
LONG_ROPE = dict(type="longrope", original_max_position_embeddings=64,
                 long_factor=[1.0 + 0.1 * i for i in range(16)], short_factor=[1.0] * 16)

# name -> config; the name says which branch it covers.
FAMILIES = {
    "llama-untied-gqa": LLAMA,
    "llama-tied-mha": dict(LLAMA, tie_word_embeddings=True, num_key_value_heads=4),
    "llama-head-dim": dict(LLAMA, head_dim=64),
    "llama-bias": dict(LLAMA, attention_bias=True, mlp_bias=True),
    "llama-rope-traditional": dict(LLAMA, rope_traditional=True),
    "llama-rope-linear": dict(LLAMA, rope_scaling=dict(type="linear", factor=4.0)),
    "llama-rope-dynamic": dict(LLAMA, max_position_embeddings=32,
                               rope_scaling=dict(type="dynamic", factor=2.0)),
    "llama-rope-llama3": dict(LLAMA, tie_word_embeddings=True, rope_scaling=LLAMA3_ROPE),
    "llama-rope-yarn": dict(LLAMA, rope_scaling=YARN_ROPE),
    "llama-rope-yarn-mscale": dict(LLAMA, rope_scaling=dict(YARN_ROPE, mscale=1.0,
                                                            mscale_all_dim=0.5)),
    "llama-rope-longrope": dict(LLAMA, rope_scaling=LONG_ROPE),
    "llama-rope-proportional": dict(LLAMA, rope_scaling=dict(type="proportional",
                                                             partial_rotary_factor=0.5)),
    "mistral": dict(LLAMA, model_type="mistral"),
}

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}


def affine(bits, group_size=32):
    return dict(group_size=group_size, bits=bits, mode="affine")


# How MLX's other modes are written; each has one group size and one width.
MODES = {
    "mxfp4": dict(group_size=32, bits=4, mode="mxfp4"),
    "mxfp8": dict(group_size=32, bits=8, mode="mxfp8"),
    "nvfp4": dict(group_size=16, bits=4, mode="nvfp4"),
}

# storage -> (dtype of activations, the config's quantization object or None)
STORAGES = {
    "f32": ("float32", None),
    "bf16": ("bfloat16", None),
    "q4-f32": ("float32", affine(4)),
    "q8-f32": ("float32", affine(8)),
    "q4-bf16": ("bfloat16", affine(4)),
    "q8-bf16": ("bfloat16", affine(8)),
}


def random_value(rng, path, array):
    """Weights that keep activations near one, so that no branch of the graph is drowned."""
    if not mx.issubdtype(array.dtype, mx.floating):
        return array
    if array.ndim == 1:
        low, high = (0.7, 1.3) if "norm" in path else (-0.2, 0.2)
        value = rng.uniform(low, high, array.shape)
    else:
        scale = 1.0 if "embed_tokens" in path else 1.5 / np.sqrt(array.shape[-1])
        value = scale * rng.standard_normal(array.shape)
    return mx.array(value.astype(np.float32))


def quantize(model, quantization):
    """As mlx-lm loads it: an entry under a module's path stands in for the defaults."""
    how = {k: v for k, v in quantization.items() if k in ("group_size", "bits", "mode")}
    nn.quantize(model, **how, class_predicate=lambda path, module: hasattr(
        module, "to_quantized") and quantization.get(path, True))


def build(config, storage, folder: Path):
    """Writes config.json and model.safetensors; returns the dtype the engine must be told. `storage`
    is a row of STORAGES or its name."""
    dtype, quantization = STORAGES[storage] if isinstance(storage, str) else storage
    config = json.loads(json.dumps(config))
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(json.loads(json.dumps(config))))
    rng = np.random.default_rng(7)
    model.update(tree_map_with_path(lambda p, a: random_value(rng, p, a), model.parameters()))
    model.set_dtype(DTYPES[dtype])
    if quantization:
        quantize(model, quantization)
        config["quantization"] = quantization
    mx.eval(model.parameters())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_model(folder, model)
    save_config(config, folder / "config.json")
    return dtype

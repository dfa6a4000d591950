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

# Fields that all the small models share; each type adds its own.
SMALL = dict(hidden_size=128, num_hidden_layers=3, intermediate_size=256, num_attention_heads=4,
             num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=VOCAB, rope_theta=10000.0,
             max_position_embeddings=2048)
WINDOW = 16  # below the prompts that tests use
HALF_SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]

GEMMA = dict(SMALL, model_type="gemma", head_dim=32)
GEMMA3 = dict(SMALL, model_type="gemma3_text", head_dim=32, query_pre_attn_scalar=48,
              sliding_window=WINDOW, sliding_window_pattern=2)
PHI3 = dict(SMALL, model_type="phi3", original_max_position_embeddings=64)
GLM4 = dict(SMALL, model_type="glm4", head_dim=32, attention_bias=True, partial_rotary_factor=0.5)
GRANITE = dict(SMALL, model_type="granite", logits_scaling=3.0, attention_multiplier=0.1,
               embedding_multiplier=2.5, residual_multiplier=0.7, attention_bias=False,
               mlp_bias=False)
MINICPM = dict(SMALL, model_type="minicpm", dim_model_base=64, scale_depth=1.4, scale_emb=3.0)
STARCODER2 = dict(SMALL, model_type="starcoder2", norm_epsilon=1e-5)
QWEN3 = dict(SMALL, model_type="qwen3", head_dim=32, tie_word_embeddings=False)
QWEN3_MOE = dict(QWEN3, model_type="qwen3_moe", num_experts=8, num_experts_per_tok=3,
                 decoder_sparse_step=1, mlp_only_layers=[], moe_intermediate_size=64,
                 norm_topk_prob=True)

QWEN35 = dict(SMALL, model_type="qwen3_5", num_hidden_layers=5, head_dim=32,
              full_attention_interval=4, linear_num_key_heads=2, linear_num_value_heads=4,
              linear_key_head_dim=32, linear_value_head_dim=16, linear_conv_kernel_dim=4,
              tie_word_embeddings=False, rope_parameters=dict(
                  rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25))

GEMMA4 = dict(SMALL, model_type="gemma4_text", num_hidden_layers=6, num_attention_heads=4,
              head_dim=32, global_head_dim=64, num_kv_shared_layers=2, vocab_size_per_layer_input=VOCAB,
              hidden_size_per_layer_input=32, sliding_window=WINDOW, sliding_window_pattern=3,
              final_logit_softcapping=30.0)
GEMMA4_MOE = dict(GEMMA4, hidden_size_per_layer_input=0, num_kv_shared_layers=0, num_hidden_layers=3,
                  enable_moe_block=True, num_experts=8, top_k_experts=3, moe_intermediate_size=64,
                  attention_k_eq_v=True, num_global_key_value_heads=1)

# name -> config; the name says which branch it covers. "_drop": tensors that are not written.
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
    "llama-sliding": dict(LLAMA, layer_types=HALF_SLIDING, sliding_window=WINDOW),
    "minicpm5": dict(LLAMA, head_dim=48),  # heads together wider than the hidden state
    "smollm3": dict(LLAMA, model_type="smollm3", no_rope_layer_interval=2),
    "smollm3-list": dict(LLAMA, model_type="smollm3", no_rope_layers=[0, 1, 0]),
    "qwen2": dict(SMALL, model_type="qwen2"),
    "qwen2-untied": dict(SMALL, model_type="qwen2", tie_word_embeddings=False),
    "qwen3": QWEN3,
    "qwen3-tied-yarn": dict(QWEN3, tie_word_embeddings=True, rope_scaling=YARN_ROPE),
    "qwen3-moe": QWEN3_MOE,
    "qwen3-moe-some-dense": dict(QWEN3_MOE, norm_topk_prob=False, mlp_only_layers=[0],
                                 decoder_sparse_step=2, num_hidden_layers=4),
    "qwen3.5": QWEN35,
    "qwen3.5-tied-interval3": dict(QWEN35, full_attention_interval=3, tie_word_embeddings=True,
                                   num_hidden_layers=4, linear_num_value_heads=6, rope_theta=500.0),
    "gemma4": GEMMA4,
    "gemma4-narrow-shared": dict(GEMMA4, use_double_wide_mlp=False, hidden_size_per_layer_input=0),
    "gemma4-moe-keys-as-values": GEMMA4_MOE,
    "gemma": GEMMA,
    "gemma2": dict(GEMMA, model_type="gemma2", query_pre_attn_scalar=48.0),
    "gemma3": GEMMA3,
    "gemma3-tied": dict(GEMMA3, _drop=["lm_head."], rope_scaling=dict(rope_type="linear",
                                                                      factor=8.0)),
    "phi3": PHI3,
    "phi3-longrope": dict(PHI3, tie_word_embeddings=True, rope_scaling=LONG_ROPE),
    "phi3-partial": dict(PHI3, partial_rotary_factor=0.5),
    "olmo2": dict(SMALL, model_type="olmo2"),
    "glm4": GLM4,
    "granite": GRANITE,
    "granite-bias": dict(GRANITE, attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
    "starcoder2": STARCODER2,
    "starcoder2-untied": dict(STARCODER2, tie_word_embeddings=False),
    "minicpm": MINICPM,
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
    dropped = config.pop("_drop", [])
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(json.loads(json.dumps(config))))
    rng = np.random.default_rng(7)
    model.update(tree_map_with_path(lambda p, a: random_value(rng, p, a), model.parameters()))
    model.set_dtype(DTYPES[dtype])
    if quantization:
        quantize(model, quantization)
        config["quantization"] = quantization
    for name in dropped:
        model.pop(name.rstrip("."))
    mx.eval(model.parameters())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_model(folder, model)
    save_config(config, folder / "config.json")
    return dtype

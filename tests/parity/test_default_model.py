"""The embedded default model against mlx-lm: the GGUF's own packed weights, loaded by MLX's reader into
mlx-lm's llama, in float32. Expected text and ids are those measured on two engines.
"""
import json
import re

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models import llama

import oracle
import tenon

FRANCE = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411,
          407, 19712, 8182, 2, 198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1,
          520, 9531, 198]
PARIS = [504, 3575, 282, 4649, 314, 7042, 30, 2]  # "The capital of France is Paris.<|im_end|>"

RENAMES = [(r"^token_embd\.", "model.embed_tokens."), (r"^output_norm\.", "model.norm."),
           (r"^blk\.(\d+)\.", r"model.layers.\1."), (r"attn_norm", "input_layernorm"),
           (r"ffn_norm", "post_attention_layernorm"), (r"attn_output", "self_attn.o_proj"),
           (r"attn_([qkv])\.", r"self_attn.\1_proj."), (r"ffn_(gate|up|down)", r"mlp.\1_proj")]


def gguf_in_mlx_lm(path):
    weights, meta = mx.load(str(path), return_metadata=True)
    number = lambda key: meta[key].item()
    args = llama.ModelArgs(
        model_type="llama", hidden_size=number("llama.embedding_length"),
        num_hidden_layers=number("llama.block_count"),
        intermediate_size=number("llama.feed_forward_length"),
        num_attention_heads=number("llama.attention.head_count"),
        num_key_value_heads=number("llama.attention.head_count_kv"),
        rms_norm_eps=number("llama.attention.layer_norm_rms_epsilon"),
        vocab_size=weights["token_embd.weight"].shape[0],
        rope_theta=number("llama.rope.freq_base"), rope_traditional=True, tie_word_embeddings=True)
    model = llama.Model(args)
    renamed = {}
    for name, value in weights.items():
        for pattern, replacement in RENAMES:
            name = re.sub(pattern, replacement, name)
        renamed[name] = value

    def how(path, module):
        if f"{path}.scales" not in renamed:
            return False
        return dict(group_size=32, bits=8 if "embed_tokens" in path else 4)

    nn.quantize(model, group_size=32, bits=4, class_predicate=how)
    model.load_weights(list(renamed.items()), strict=True)
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    return model


@pytest.mark.timeout(900)
def test_bits_equal_mlx_lm(tmp_path):
    steps = len(PARIS) - 1
    got, ids = tenon.logits(tenon.DEFAULT_MODEL, FRANCE, steps, tmp_path / "out.safetensors",
                            "--kernels", "mlx", "--chunk", len(FRANCE))
    assert ids[len(FRANCE):].tolist() == PARIS
    want, want_ids = oracle.greedy(gguf_in_mlx_lm(tenon.DEFAULT_MODEL), FRANCE, steps)
    assert ids.tolist() == want_ids.tolist()
    assert np.array_equal(got, want), np.abs(got - want).max()

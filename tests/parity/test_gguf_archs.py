"""GGUF architectures besides llama: a recipe's weights, written by gguf-py under the names its own table gives
to Hugging Face's, compute the same bits as the safetensors folder they came from (which is bit-equal to
mlx-lm: test_families.py).
"""
import json

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

import recipes
import tenon

PROMPT = [(37 * i + 11) % 509 for i in range(40)]
STEPS = 8

# recipe -> GGUF architecture
ARCHS = {
    "qwen2": ("qwen2", gguf.MODEL_ARCH.QWEN2),
    "qwen2-untied": ("qwen2", gguf.MODEL_ARCH.QWEN2),
    "qwen3": ("qwen3", gguf.MODEL_ARCH.QWEN3),
    "qwen3-moe": ("qwen3moe", gguf.MODEL_ARCH.QWEN3MOE),
    "gemma3-tied": ("gemma3", gguf.MODEL_ARCH.GEMMA3),
}
# Fields of the recipes that GGUF's format cannot say: there the value is implied.
IMPLIED = {"gemma3-tied": dict(query_pre_attn_scalar=32, sliding_window_pattern=6, num_hidden_layers=7,
                               rope_scaling=None)}


def add_metadata(writer, config):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if "sliding_window" in config:
        writer.add_sliding_window(config["sliding_window"])
    if "num_experts" in config:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def to_gguf(folder, path, name, arch):
    config = json.loads((folder / "config.json").read_text())
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(path, name)
    add_metadata(writer, config)
    for hf, value in load_file(folder / "model.safetensors").items():
        # mlx-lm's name for a stack of experts; gguf-py knows it as the merged "experts".
        stored = names.get_name(hf.replace("switch_mlp", "experts"), try_suffixes=(".weight", ".bias"))
        assert stored, hf
        if name == "gemma3" and "norm" in hf:
            value = value + 1  # as the format's converter does
        writer.add_tensor(stored, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kernels", ["mlx", "tenon"])
@pytest.mark.parametrize("recipe", ARCHS)
def test_same_bits_as_safetensors(recipe, kernels, tmp_path):
    folder, path = tmp_path / "model", tmp_path / "model.gguf"
    recipes.build(dict(recipes.FAMILIES[recipe], **IMPLIED.get(recipe, {})), "f32", folder)
    to_gguf(folder, path, *ARCHS[recipe])
    run = lambda model: tenon.logits(model, PROMPT, STEPS, tmp_path / "out.safetensors", "--kernels",
                                     kernels, "--dtype", "float32")
    want, want_ids = run(folder)
    got, ids = run(path)
    assert ids.tolist() == want_ids.tolist()
    assert np.array_equal(got, want), np.abs(got - want).max()


def test_llama3_rope_factors(tmp_path):
    """rope_freqs.weight holds what the llama3 rule does to each wavelength."""
    folder, path = tmp_path / "model", tmp_path / "model.gguf"
    config = dict(recipes.FAMILIES["llama-rope-llama3"], rope_traditional=True)
    recipes.build(config, "f32", folder)
    to_gguf(folder, tmp_path / "plain.gguf", "llama", gguf.MODEL_ARCH.LLAMA)
    scaling = recipes.LLAMA3_ROPE
    dims = config["hidden_size"] // config["num_attention_heads"]
    waves = 2 * np.pi * config["rope_theta"] ** (np.arange(0, dims, 2) / dims)
    old = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = np.clip((old / waves - low) / (high - low), 0, 1)
    factors = 1 / ((1 - smooth) / scaling["factor"] + smooth)

    reader = gguf.GGUFReader(tmp_path / "plain.gguf")
    writer = gguf.GGUFWriter(path, "llama")
    add_metadata(writer, config)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data))
    writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    run = lambda model: tenon.logits(model, PROMPT, STEPS, tmp_path / "out.safetensors", "--kernels",
                                     "tenon", "--kv", "f32")[0]
    want, got, plain = run(folder), run(path), run(tmp_path / "plain.gguf")
    assert np.abs(got - want).max() / np.abs(want).max() < 1e-4
    assert np.abs(plain - want).max() / np.abs(want).max() > 1e-2, "the factors change nothing"

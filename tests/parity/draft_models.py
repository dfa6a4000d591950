"""Targets and drafters for the laws of speculation: tiny models of the families' table with words to talk in."""
import json

import mlx.core as mx
import numpy as np
from safetensors.numpy import load_file, save_file

import chain
import recipes

CONTEXT = 2048


def add_words(folder):
    """A byte vocabulary of exactly VOCAB tokens: every logit has a token."""
    vocabulary = chain.build_vocabulary({}, False)
    syllables = [f" {a}{b}" for a in "bcdfghjklmnpqrstvwxz" for b in "aeiouylr"] + [f" {a}" for a in range(200)]
    while len(vocabulary) < recipes.VOCAB:
        vocabulary.add_piece(syllables.pop(0).encode())
    vocabulary.save(folder / "tokenizer.json")
    chain.put(folder, "tokenizer_config.json", dict(tokenizer_class="PreTrainedTokenizerFast"))


def target(folder, family, storage="f32", peaked=1.0):
    """`peaked`: a factor of the head, so that random models are not sure of every token."""
    recipes.build(recipes.FAMILIES[family], storage, folder)
    add_words(folder)
    if peaked != 1.0:
        edit(folder, lambda tensors: tensors.update(
            {k: v * np.float32(peaked) for k, v in tensors.items() if k.endswith("lm_head.weight")}))
    return folder


def pad_vocabulary(folder, rows):
    """Heads and embeddings are often made longer than the vocabulary, for round sizes."""
    def change(tensors):
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            more = tensors[name][:rows - tensors[name].shape[0]]  # as likely as words
            tensors[name] = np.concatenate([tensors[name], more])

    edit(folder, change)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": rows}))


def edit(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "mlx"})


def head_tensors(config, rng, prefix="mtp."):
    """A head for multi-token prediction that copies its embedding through, more or less."""
    width, ffn, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]

    def random(out, into, scale):
        return (scale * rng.standard_normal((out, into)) / np.sqrt(into)).astype(np.float32)

    tensors = {
        "fc.weight": np.concatenate([np.eye(width, dtype=np.float32), np.zeros((width, width), np.float32)], 1)
        + 0.02 * rng.standard_normal((width, 2 * width)).astype(np.float32),
        "layers.0.self_attn.q_proj.weight": random(2 * heads * dim, width, 1.0),
        "layers.0.self_attn.k_proj.weight": random(kv * dim, width, 1.0),
        "layers.0.self_attn.v_proj.weight": random(kv * dim, width, 1.0),
        "layers.0.self_attn.o_proj.weight": random(width, heads * dim, 0.3),
        "layers.0.mlp.gate_proj.weight": random(ffn, width, 1.0),
        "layers.0.mlp.up_proj.weight": random(ffn, width, 1.0),
        "layers.0.mlp.down_proj.weight": random(width, ffn, 0.3),
    }
    for name, size in {"pre_fc_norm_embedding": width, "pre_fc_norm_hidden": width, "norm": width,
                       "layers.0.input_layernorm": width, "layers.0.post_attention_layernorm": width,
                       "layers.0.self_attn.q_norm": dim, "layers.0.self_attn.k_norm": dim}.items():
        tensors[f"{name}.weight"] = rng.uniform(0.8, 1.2, size).astype(np.float32)
    return {prefix + name: value for name, value in tensors.items()}


def head_rng():
    return np.random.default_rng(29)


def shifting_target(folder, scale, separate_head=None):
    """Qwen3.5 with a head: token t is mostly followed by t + 1, less surely the larger `scale` is.
    separate_head: a folder for the head instead of tensors mtp.* beside the target's own."""
    config = recipes.FAMILIES["qwen3.5"]
    recipes.build(config, "f32", folder)
    add_words(folder)
    rng = np.random.default_rng(23)
    head = head_tensors(config, head_rng())

    def change(tensors):
        embed = next(k for k in tensors if k.endswith("embed_tokens.weight"))
        lm_head = next(k for k in tensors if k.endswith("lm_head.weight"))
        table = rng.standard_normal(tensors[embed].shape).astype(np.float32)
        tensors[embed] = table
        tensors[lm_head] = 0.3 * np.roll(table, 1, axis=0)
        for name in tensors:
            if name.endswith(("o_proj.weight", "down_proj.weight", "out_proj.weight")):
                tensors[name] = tensors[name] * np.float32(scale)
        if separate_head is None:
            tensors.update(head)

    edit(folder, change)
    if separate_head is not None:
        separate_head.mkdir(parents=True)
        save_file({k.removeprefix("mtp."): v for k, v in head.items()}, separate_head / "model.safetensors",
                  metadata={"format": "mlx"})
        text = dict(config, model_type="qwen3_5_text", mtp_num_hidden_layers=1,
                    mtp_use_dedicated_embeddings=False)
        (separate_head / "config.json").write_text(json.dumps(
            dict(model_type="qwen3_5_mtp", block_size=3, tie_word_embeddings=False, text_config=text)))
    mx.clear_cache()
    return folder

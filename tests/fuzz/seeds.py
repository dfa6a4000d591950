"""Writes what fuzzing starts from: FOLDER/{safetensors,gguf,config}/*, small and valid.

Usage: seeds.py FOLDER
"""
import json
import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import save

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "parity"))

import recipes  # noqa: E402

SCHEMES = {"4bit": dict(bits=4, group_size=32), "mxfp4": dict(bits=4, group_size=32, mode="mxfp4")}


def configs():
    for name, config in recipes.FAMILIES.items():
        yield name, {key: value for key, value in config.items() if not key.startswith("_")}
    for name, scheme in SCHEMES.items():
        yield name, dict(recipes.FAMILIES["qwen3"], quantization=dict(scheme, **{"model.embed_tokens": False}))
    yield "bert", dict(model_type="bert", hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                       intermediate_size=96, vocab_size=40, max_position_embeddings=32)
    text = dict(recipes.FAMILIES["qwen3.5"], mtp_num_hidden_layers=1)
    yield "drafter", dict(model_type="qwen3_5_mtp", block_size=3, text_config=text)


def safetensors():
    zeros = lambda dtype, *shape: np.zeros(shape, dtype)
    yield "dense", save({"a.weight": zeros(np.float32, 8, 64), "a.bias": zeros(np.float16, 8)}, {"format": "pt"})
    yield "packed", save({"a.weight": zeros(np.uint32, 8, 8), "a.scales": zeros(np.float32, 8, 2),
                          "a.biases": zeros(np.float32, 8, 2)})
    yield "empty", save({})


def write_gguf(path, architecture, tokens):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model(tokens)
    writer.add_token_list(["<unk>", "a", "b", "ab"])
    writer.add_token_scores([0.0, -1.0, -2.0, -3.0])
    writer.add_token_types([2, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    for kind in (gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0):
        data = gguf.quantize(np.zeros((2, 32), np.float32), kind)
        writer.add_tensor(f"blk.0.{kind.name.lower()}.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(folder):
    for kind in ("safetensors", "gguf", "config"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for name, config in configs():
        (folder / "config" / name).write_text(json.dumps(config))
    for name, content in safetensors():
        (folder / "safetensors" / name).write_bytes(content)
    for architecture in ("llama", "qwen2", "qwen3", "qwen3moe", "gemma3"):
        for tokens in ("gpt2", "llama"):
            write_gguf(folder / "gguf" / f"{architecture}-{tokens}", architecture, tokens)


main(pathlib.Path(sys.argv[1]))

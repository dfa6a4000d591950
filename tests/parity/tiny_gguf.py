"""A tiny random llama as one GGUF file, its matrices in any block format, and the same model in mlx-lm
with the weights that gguf-py reads out of those blocks.
"""
import gguf
import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType as Type
from mlx_lm.models import llama

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, VOCAB = 256, 512, 2, 4, 2, 512
HEAD_DIM = HIDDEN // HEADS

NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
MATRICES = {
    "attn_q": ("self_attn.q_proj", HIDDEN, HIDDEN),
    "attn_k": ("self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_v": ("self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_output": ("self_attn.o_proj", HIDDEN, HIDDEN),
    "ffn_gate": ("mlp.gate_proj", FFN, HIDDEN),
    "ffn_up": ("mlp.up_proj", FFN, HIDDEN),
    "ffn_down": ("mlp.down_proj", HIDDEN, FFN),
}
TABLES = {"token_embd": "model.embed_tokens", "output": "lm_head"}

# gguf-py writes no K-quants: their blocks are random bytes under these float16 scales. type -> (where
# the scale is, where that of the minima is, the mean code, which the minima take off)
K_BLOCKS = {
    Type.Q2_K: (80, 82, 1.5),
    Type.Q3_K: (108, None, None),
    Type.Q4_K: (0, 2, 7.5),
    Type.Q5_K: (0, 2, 15.5),
    Type.Q6_K: (208, None, None),
}


def k_blocks(rng, kind, rows, cols, spread):
    """Stored bytes [rows, bytes] of weights whose standard deviation is about `spread`."""
    scale_at, min_at, mean_code = K_BLOCKS[kind]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows * cols // block, size), dtype=np.uint8)

    def put(scales):
        data[:, scale_at:scale_at + 2] = scales.astype(np.float16).view(np.uint8).reshape(-1, 2)
        if min_at is not None:
            mins = (scales * mean_code).astype(np.float16)
            data[:, min_at:min_at + 2] = mins.view(np.uint8).reshape(-1, 2)
        return data.reshape(rows, -1)

    unit = gguf.dequantize(put(np.ones(len(data))), kind).std()
    return put(spread / unit * rng.uniform(0.5, 1.5, len(data)))


def stored_matrix(rng, kind, rows, cols, spread):
    if kind in K_BLOCKS:
        return k_blocks(rng, kind, rows, cols, spread)
    weights = (spread * rng.standard_normal((rows, cols))).astype(np.float32)
    return gguf.quantize(weights, kind)


def build(kind, path):
    """Writes the file; returns mlx-lm's model, in float32."""
    rng = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    weights = {}

    def norm(name, hf):
        value = rng.uniform(0.7, 1.3, HIDDEN).astype(np.float32)
        writer.add_tensor(f"{name}.weight", value)
        weights[f"{hf}.weight"] = mx.array(value)

    def matrix(name, hf, rows, cols, spread):
        stored = stored_matrix(rng, kind, rows, cols, spread)
        writer.add_tensor(f"{name}.weight", stored, raw_dtype=kind)
        weights[f"{hf}.weight"] = mx.array(gguf.dequantize(stored, kind))

    for name, hf in TABLES.items():
        matrix(name, hf, VOCAB, HIDDEN, 1.0 if name == "token_embd" else 1.5 / np.sqrt(HIDDEN))
    norm("output_norm", "model.norm")
    for i in range(LAYERS):
        for name, hf in NORMS.items():
            norm(f"blk.{i}.{name}", f"model.layers.{i}.{hf}")
        for name, (hf, rows, cols) in MATRICES.items():
            matrix(f"blk.{i}.{name}", f"model.layers.{i}.{hf}", rows, cols, 1.5 / np.sqrt(cols))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = llama.Model(llama.ModelArgs(
        model_type="llama", hidden_size=HIDDEN, num_hidden_layers=LAYERS, intermediate_size=FFN,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, rms_norm_eps=1e-5,
        vocab_size=VOCAB, rope_theta=10000.0, rope_traditional=True, tie_word_embeddings=False))
    model.load_weights(list(weights.items()), strict=True)
    mx.eval(model.parameters())
    return model

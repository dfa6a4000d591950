"""Every stored format against outside oracles, through a whole tiny model: GGUF blocks as gguf-py reads
them, MLX's formats as mlx-lm computes them. What `tenon` kernels lose is far below what codes read
wrongly would change; stock ops lose nothing.
"""
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

import oracle
import recipes
import tenon
import tiny_gguf

PROMPT = [(37 * i + 11) % 509 for i in range(40)]
STEPS = 8
# Of the logits' own size: 1e-4 is lost to 16-bit activations, 2e-6 where weights are floats.
LOST = 5e-4
LOST_FLOATS = 1e-5

BLOCKS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
DENSE = ["F32", "F16", "BF16"]
FLOATS = {*DENSE, "mxfp8"}

CONFIG = dict(recipes.LLAMA, num_hidden_layers=2, hidden_size=256)
MIXED = dict(recipes.MODES["mxfp4"],
             **{"lm_head": recipes.affine(8, 64),
                "model.embed_tokens": recipes.affine(3, 128),
                "model.layers.0.mlp.down_proj": recipes.MODES["nvfp4"],
                "model.layers.1.self_attn.q_proj": recipes.MODES["mxfp8"],
                "model.layers.1.mlp.up_proj": False})
STORED = {f"affine-{bits}-{group}": recipes.affine(bits, group)
          for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)}
STORED |= recipes.MODES | {"mixed": MIXED}


def run(model, tmp_path, *flags):
    return tenon.logits(model, PROMPT, STEPS, tmp_path / "out.safetensors", "--dtype", "float32",
                        *flags)


def lost(got, want):
    return np.sqrt(np.square(got - want).mean() / np.square(want).mean())


def check_close(stored, model, want, tmp_path):
    got, ids = run(model, tmp_path, "--kernels", "tenon", "--kv", "f32")
    logits, want_ids = want
    assert ids.tolist() == want_ids.tolist()
    assert lost(got, logits) < (LOST_FLOATS if stored in FLOATS else LOST)
    cut, _ = run(model, tmp_path, "--kernels", "tenon", "--kv", "f32", "--chunk", 7)
    assert np.array_equal(cut, got), "the row law"


@pytest.mark.parametrize("kind", BLOCKS + DENSE)
def test_gguf(kind, tmp_path):
    path = tmp_path / "model.gguf"
    model = tiny_gguf.build(Type[kind], path)
    want = oracle.greedy(model, PROMPT, STEPS)
    assert np.abs(want[0]).max() > 0.1
    check_close(kind, path, want, tmp_path)
    got, ids = run(path, tmp_path, "--kernels", "mlx", "--chunk", len(PROMPT))
    assert ids.tolist() == want[1].tolist()
    assert np.array_equal(got, want[0]), lost(got, want[0])


@pytest.mark.parametrize("scales", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("stored", STORED)
def test_mlx(stored, scales, tmp_path):
    folder = tmp_path / "model"
    recipes.build(CONFIG, (scales, STORED[stored]), folder)
    model = oracle.load(folder)
    model.set_dtype(recipes.DTYPES["float32"])
    check_close(stored, folder, oracle.greedy(model, PROMPT, STEPS), tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("stored", [*recipes.MODES, "mixed"])
def test_stock_ops_in_other_modes(stored, dtype, tmp_path):
    folder = tmp_path / "model"
    recipes.build(CONFIG, (dtype, STORED[stored]), folder)
    want, want_ids = oracle.greedy(oracle.load(folder), PROMPT, STEPS)
    got, ids = tenon.logits(folder, PROMPT, STEPS, tmp_path / "out.safetensors", "--dtype", dtype,
                            "--kernels", "mlx", "--chunk", len(PROMPT))
    assert ids.tolist() == want_ids.tolist()
    assert np.array_equal(got, want), lost(got, want)

"""Kernel family `mlx` is bit-equal to mlx-lm on this device: every row of the family table, in every
storage, over prefill and 16 greedy steps.
"""
import numpy as np
import pytest

import oracle
import recipes
import tenon

PROMPT = [(37 * i + 11) % 509 for i in range(40)]
STEPS = 16


def describe(got, want):
    rows = np.where((got != want).any(axis=1))[0]
    return f"first differing row {rows[0]}, largest difference {np.abs(got - want).max()}"


@pytest.fixture(scope="module", params=sorted(recipes.FAMILIES))
def family(request):
    return request.param


# The CPU's gather_mm, and so mlx-lm, has dense experts in float32 only.
NO_ORACLE = {(name, "bf16") for name in recipes.FAMILIES if "moe" in name}


@pytest.mark.parametrize("chunk", [len(PROMPT), 16])
@pytest.mark.parametrize("storage", sorted(recipes.STORAGES))
def test_bits_equal_mlx_lm(family, storage, chunk, tmp_path):
    if (family, storage) in NO_ORACLE or (chunk < len(PROMPT) and "q8" in storage):
        return
    folder = tmp_path / "model"
    dtype = recipes.build(recipes.FAMILIES[family], storage, folder)
    want, want_ids = oracle.greedy(oracle.load(folder), PROMPT, STEPS, chunk)
    got, ids = tenon.logits(folder, PROMPT, STEPS, tmp_path / "out.safetensors", "--dtype", dtype,
                            "--kernels", "mlx", "--chunk", chunk)
    assert ids.tolist() == want_ids.tolist()
    assert got.shape == want.shape == (len(PROMPT) + STEPS, recipes.VOCAB)
    assert np.array_equal(got, want), describe(got, want)
    assert np.abs(want).max() > 0.1, "a model that says nothing would agree with anything"


# What our kernels may be off by: sums in another order, activations as 16-bit codes. Gemma 4 does not
# scale its scores, so random weights make its softmax all but choose one key, and a last bit shows.
TOLERANCE = {"f32": 2e-5, "q4-f32": 2e-3, "q8-f32": 2e-3}
UNSCALED = 30


@pytest.mark.parametrize("storage", sorted(TOLERANCE))
def test_our_kernels_agree(family, storage, tmp_path):
    """Against the same graph in stock arithmetic, prompt only: a greedy choice may fall otherwise."""
    if family == "llama-rope-dynamic":
        return  # ours turns each token by the length that ends with it; ARCHITECTURE.md
    folder = tmp_path / "model"
    recipes.build(recipes.FAMILIES[family], storage, folder)
    stock, ours = (tenon.logits(folder, PROMPT, 0, tmp_path / f"{kernels}.safetensors", "--dtype",
                                "float32", "--kv", "f32", "--kernels", kernels)[0]
                   for kernels in ("mlx", "tenon"))
    off = np.abs(ours - stock).max() / np.abs(stock).max()
    allowed = TOLERANCE[storage] * (UNSCALED if family.startswith("gemma4") else 1)
    assert off < allowed, off

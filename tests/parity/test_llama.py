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


@pytest.mark.parametrize("storage", sorted(recipes.STORAGES))
def test_bits_equal_mlx_lm(family, storage, tmp_path):
    folder = tmp_path / "model"
    dtype = recipes.build(recipes.FAMILIES[family], storage, folder)
    want, want_ids = oracle.greedy(oracle.load(folder), PROMPT, STEPS)
    got, ids = tenon.logits(folder, PROMPT, STEPS, tmp_path / "out.safetensors", "--dtype", dtype,
                            "--kernels", "mlx", "--chunk", len(PROMPT))
    assert ids.tolist() == want_ids.tolist()
    assert got.shape == want.shape == (len(PROMPT) + STEPS, recipes.VOCAB)
    assert np.array_equal(got, want), describe(got, want)
    assert np.abs(want).max() > 0.1, "a model that says nothing would agree with anything"

"""Quantized keys and values: with `--kernels mlx` bit-equal to mlx-lm's QuantizedKVCache used from the first
token; with our kernels the same values up to the order of sums.
"""
import numpy as np
import pytest
from mlx_lm.models.cache import QuantizedKVCache

import oracle
import recipes
import tenon

PROMPT = [(37 * i + 11) % 509 for i in range(40)]
STEPS = 16
GROUP = 32  # heads are 32 wide
FAMILIES = ("llama-untied-gqa", "llama-tied-mha", "qwen3", "qwen3-moe")


def quantized_caches(bits):
    return lambda model: [QuantizedKVCache(group_size=GROUP, bits=bits) for _ in model.layers]


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("storage", ["f32", "bf16", "q4-bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_bits_equal_mlx_lm(family, storage, bits, tmp_path):
    if "moe" in family and storage == "bf16":
        return  # no oracle: the CPU's gather_mm is for float32
    folder = tmp_path / "model"
    dtype = recipes.build(recipes.FAMILIES[family], storage, folder)
    want, want_ids = oracle.greedy(oracle.load(folder), PROMPT, STEPS, 16, quantized_caches(bits))
    got, ids = tenon.logits(folder, PROMPT, STEPS, tmp_path / "out.safetensors", "--dtype", dtype,
                            "--kernels", "mlx", "--kv", f"q{bits}", "--chunk", 16)
    assert ids.tolist() == want_ids.tolist()
    assert np.array_equal(got, want), np.abs(got - want).max()


@pytest.mark.parametrize("bits", [8, 4])
def test_our_kernels_agree(bits, tmp_path):
    folder = tmp_path / "model"
    recipes.build(recipes.FAMILIES["llama-untied-gqa"], "f32", folder)
    run = lambda kernels, kv: tenon.logits(folder, PROMPT, 0, tmp_path / "out.safetensors", "--dtype",
                                           "float32", "--kernels", kernels, "--kv", kv)[0]
    stock, ours, exact = run("mlx", f"q{bits}"), run("tenon", f"q{bits}"), run("tenon", "f32")
    scale = np.abs(stock).max()
    # A last bit of a key can turn its code, so a few logits move by a code's worth.
    assert np.abs(ours - stock).max() / scale < (0.01 if bits == 8 else 0.1)
    assert np.median(np.abs(ours - stock)) / scale < 1e-3
    assert not np.array_equal(ours, exact), "nothing was quantized"


@pytest.mark.parametrize("kv", ["q8", "q4"])
def test_row_law(kv, tmp_path):
    folder = tmp_path / "model"
    recipes.build(recipes.FAMILIES["gemma3"], "q4-f32", folder)  # windows and full layers
    run = lambda *flags, batch_with=(): tenon.logits(
        folder, PROMPT, STEPS, tmp_path / "out.safetensors", "--kernels", "tenon", "--kv", kv, *flags,
        batch_with=batch_with)[0]
    alone = run("--chunk", len(PROMPT))
    for chunk in (1, 7, 39):
        assert np.array_equal(run("--chunk", chunk), alone), chunk
    assert np.array_equal(run("--chunk", 7, batch_with=[PROMPT[::-1], PROMPT[5:30]]), alone)


def test_a_checkpoint_may_say_it_by_layer(tmp_path):
    folder = tmp_path / "model"
    recipes.build(recipes.FAMILIES["llama-untied-gqa"], "f32", folder)
    run = lambda *flags: tenon.logits(folder, PROMPT, 0, tmp_path / "out.safetensors", "--kernels",
                                      "tenon", *flags)[0]
    plain = run()
    (folder / "kv_config.json").write_text('[{"layer_idx": 1, "bits": 8, "group_size": 32}]')
    by_layer = run()
    assert not np.array_equal(by_layer, plain)
    assert not np.array_equal(by_layer, run("--kv", "q8")), "the flag outranks the file"

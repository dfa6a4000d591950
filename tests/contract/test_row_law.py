"""The row law: logits at a position are a function of the tokens before it alone, bit for bit. Not of the
prefill chunk, the batch, the row's place in it. The oracle is the same row alone, in one chunk.
"""
import numpy as np
import pytest

import recipes
import tenon

PROMPT = [(37 * i + 11) % 509 for i in range(40)]
STEPS = 16
CHUNKS = (1, 7, 16, 39)
OTHERS = [PROMPT[::-1], PROMPT[:3], PROMPT[5:30]]

# Where stock ops break the law on this device, measured by this test with the entries taken out: a
# dynamic RoPE base is computed from how far the row has come, so a chunk's border moves it; a window's
# ring holds its keys in an order that follows the chunks, and sums follow that order.
WINDOWS = {name for name, config in recipes.FAMILIES.items() if "sliding_window" in config}
BROKEN = {("mlx", name) for name in WINDOWS | {"llama-rope-dynamic"}}
STORAGES = {"mlx": ("f32", "q4-f32"), "tenon": ("f32", "bf16", "q4-f32", "q8-f32")}
COMMON = ("f32", "q4-f32")  # the other storages differ in kernels only, which one family shows
CASES = [(kernels, name, storage) for kernels in STORAGES for storage in STORAGES[kernels]
         for name in sorted(recipes.FAMILIES) if (kernels, name) not in BROKEN
         and (storage in COMMON or name in ("llama-untied-gqa", "qwen3-moe", "qwen3.5", "gemma4"))]
# Flags that must not show in a bit, with our kernels.
INVISIBLE = {"tenon": [("--threads", 1), ("--threads", 3)], "mlx": []}


def describe(got, want):
    rows = np.where((got != want).any(axis=1))[0]
    return f"first differing row {rows[0]}, largest difference {np.abs(got - want).max()}"


@pytest.mark.parametrize("kernels,name,storage", CASES)
def test_rows_do_not_see_chunks_or_neighbours(kernels, name, storage, tmp_path):
    folder = tmp_path / "model"
    recipes.build(recipes.FAMILIES[name], storage, folder)

    def run(*flags, batch_with=()):
        return tenon.logits(folder, PROMPT, STEPS, tmp_path / "out.safetensors", "--kernels", kernels,
                            "--dtype", "float32", *flags, batch_with=batch_with)

    alone, ids = run("--chunk", len(PROMPT))
    for flags in [("--chunk", chunk) for chunk in CHUNKS] + INVISIBLE[kernels]:
        got, got_ids = run(*flags)
        assert np.array_equal(got, alone), f"{flags}: {describe(got, alone)}"
        assert got_ids.tolist() == ids.tolist()
    for batch in (OTHERS[:1], OTHERS):
        got, _ = run("--chunk", 7, batch_with=batch)
        assert np.array_equal(got, alone), f"batch of {len(batch) + 1}: {describe(got, alone)}"


@pytest.mark.parametrize("name,chunk", [("llama-rope-dynamic", 7), ("llama-sliding", 1)])
def test_the_exceptions_are_real(name, chunk, tmp_path):
    """Chunks do show there: when this fails, take the entry off the list."""
    folder = tmp_path / "model"
    recipes.build(recipes.FAMILIES[name], "f32", folder)
    whole, _ = tenon.logits(folder, PROMPT, 1, tmp_path / "a.safetensors", "--kernels", "mlx", "--chunk",
                            len(PROMPT))
    cut, _ = tenon.logits(folder, PROMPT, 1, tmp_path / "b.safetensors", "--kernels", "mlx", "--chunk",
                          chunk)
    assert not np.array_equal(whole, cut)


@pytest.mark.parametrize("target", ["reference", "sse4"])
def test_targets_give_the_same_bits(target, tmp_path):
    """Instruction sets are a matter of speed. sse4 has no fused multiply-add: it must run, near."""
    folder = tmp_path / "model"
    recipes.build(recipes.FAMILIES["llama-untied-gqa"], "q4-f32", folder)
    best, ids = tenon.logits(folder, PROMPT, STEPS, tmp_path / "a.safetensors", "--kernels", "tenon")
    other, other_ids = tenon.logits(folder, PROMPT, STEPS, tmp_path / "b.safetensors", "--kernels", "tenon",
                                    env={"TENON_CPU_TARGET": target})
    assert other_ids.tolist() == ids.tolist()
    if target == "reference":
        assert np.array_equal(other, best), describe(other, best)
    else:
        np.testing.assert_allclose(other, best, atol=1e-2)  # a last bit turns a stored half
        assert not np.array_equal(other, best), "the force did not work"


def test_an_unknown_target_is_refused(tmp_path):
    folder = tmp_path / "model"
    recipes.build(recipes.FAMILIES["llama-untied-gqa"], "q4-f32", folder)
    with pytest.raises(AssertionError, match="TENON_CPU_TARGET riscv.*reference"):
        tenon.logits(folder, PROMPT, 1, tmp_path / "a.safetensors", "--kernels", "tenon",
                     env={"TENON_CPU_TARGET": "riscv"})

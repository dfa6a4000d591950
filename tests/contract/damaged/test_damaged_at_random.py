"""Headers with random bytes changed: a refusal or a model, soon, and never a signal."""

from random import Random

import pytest
from damaged_common import (
    INFO,
)

SEEDS, EACH = range(10), 20


def mutated(raw, front, rng):
    """One byte of the front changed, or the file cut there."""
    at = rng.randrange(front)
    if rng.random() < 0.25:
        return raw[:at]
    return raw[:at] + bytes([raw[at] ^ rng.randrange(1, 256)]) + raw[at + 1 :]


def sweep(tenon, model, file, front, seed):
    whole = file.read_bytes()
    rng = Random(seed)
    for _ in range(EACH):
        raw = mutated(whole, front, rng)
        file.write_bytes(raw)
        ended = tenon.bounded(INFO, model)
        if ended.code == 1:
            assert str(model) in ended.err or "config.json" in ended.err, ended


@pytest.mark.parametrize("seed", SEEDS)
def test_mutated_safetensors(tenon, folder, tensors, seed):
    sweep(tenon, folder, folder / "model.safetensors", tensors.header_end(), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_mutated_gguf(tenon, good_gguf, gguf_path, seed):
    gguf_path.write_bytes(good_gguf.bytes())
    sweep(tenon, gguf_path, gguf_path, good_gguf.parts["padding"][0], seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_mutated_config(tenon, folder, seed):
    file = folder / "config.json"
    sweep(tenon, folder, file, file.stat().st_size, seed)

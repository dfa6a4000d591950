"""NaN among the weights, which no header shows, ends a reply with an error and not with text."""

import re
import struct

import chain
import pytest
from damaged import (
    BLOCK,
    BLOCKS,
    FFN,
    HIDDEN,
    Safetensors,
    blocks,
)
from damaged_common import (
    BLOCK_LAST,
    EMBED,
    GENERATE,
    HEAD,
    INFO,
    KERNELS,
    LOGITS,
    NAN,
    NORM,
    UP,
    logits_of,
    place,
    put_quantized,
    stored,
)

IN_LAYER = [f"model.layers.0.{hf}.weight" for hf, _ in BLOCK.values()]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("name", [EMBED, HEAD, NORM, *IN_LAYER])
def test_one_nan_ends_the_reply(tenon, folder, tensors, vocabulary, name, kernels):
    said = vocabulary.id_of("a")
    at = 4 * HIDDEN * said if name == EMBED else 0
    (folder / "model.safetensors").write_bytes(tensors.poked(name, NAN, at).bytes())
    assert tenon.bounded(INFO, folder).code == 0  # a header cannot show it
    for command in (GENERATE, [*GENERATE, "--temperature", "0"], [*GENERATE, "--json"]):
        tenon.refused([*command, "--kernels", kernels], folder, "NaN")
    tenon.refused(logits_of(1, said, 3) + ["--kernels", kernels], folder, "NaN")


# Stock ops store 8 and 4 bits as mlx-lm does, where a NaN becomes some number.
CACHES = [("mlx", kv) for kv in ("f32", "f16", "bf16")]
CACHES += [("tenon", kv) for kv in ("f32", "f16", "q8", "q4")]


@pytest.mark.parametrize("kernels, kv", CACHES)
@pytest.mark.parametrize("which", ["k", "v"])
def test_one_nan_in_the_cache(tenon, folder, tensors, which, kernels, kv):
    name = f"model.layers.0.self_attn.{which}_proj.weight"
    (folder / "model.safetensors").write_bytes(tensors.poked(name, NAN).bytes())
    tenon.refused([*LOGITS, "--kernels", kernels, "--kv", kv], folder, "NaN")


WIDTHS = {"F16": b"\0\x7e", "BF16": b"\xc0\x7f", "F64": struct.pack("<d", float("nan"))}


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_one_nan_of_another_width(tenon, folder, tensors, dtype, kernels):
    raw = WIDTHS[dtype] + bytes(len(WIDTHS[dtype]) * (FFN * HIDDEN - 1))
    made = tensors.appended(UP, dtype, [FFN, HIDDEN], raw)
    (folder / "model.safetensors").write_bytes(made.bytes())
    word = re.escape(UP) if (dtype, kernels) == ("F64", "tenon") else "NaN"  # not read there
    tenon.refused([*LOGITS, "--kernels", kernels], folder, word)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("kind, place", [(kind, at) for kind in BLOCKS for at in BLOCKS[kind][3]])
def test_one_nan_in_gguf_blocks(tenon, good_gguf, gguf_path, kind, place, kernels):
    raw = blocks(kind, FFN * HIDDEN)
    model = good_gguf.tensor(BLOCK_LAST, kind=BLOCKS[kind][0], raw=raw)
    gguf_path.write_bytes(model.bytes())
    command = [*LOGITS, "--kernels", kernels]
    assert tenon.bounded(command, gguf_path).code == 0
    raw = raw[:place] + WIDTHS["F16"] + raw[place + 2 :]
    gguf_path.write_bytes(model.tensor(BLOCK_LAST, raw=raw).bytes())
    tenon.refused(command, gguf_path, "NaN")


HALF, SINGLE = struct.pack("<e", 0.01), struct.pack("<f", 0.01)
MLX_NANS = {
    "affine-4-scale": (stored("affine", 4, 32, SINGLE), "scales", NAN),
    "affine-4-bias": (stored("affine", 4, 32, SINGLE), "biases", NAN),
    "affine-8-scale-f16": (stored("affine", 8, 64, HALF), "scales", WIDTHS["F16"]),
    "affine-8-bias-f16": (stored("affine", 8, 64, HALF), "biases", WIDTHS["F16"]),
    "affine-3-scale": (stored("affine", 3, 32, SINGLE), "scales", NAN),
    "mxfp4-scale": (stored("mxfp4", 4, 32, b"\x78"), "scales", b"\xff"),
    "mxfp8-scale": (stored("mxfp8", 8, 32, b"\x78"), "scales", b"\xff"),
    "mxfp8-code": (stored("mxfp8", 8, 32, b"\x78"), "weight", b"\x7f"),
    "nvfp4-scale": (stored("nvfp4", 4, 16, b"\x30"), "scales", b"\x7f"),
}


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("case", MLX_NANS)
def test_one_nan_in_mlx_formats(tenon, folder, tensors, case, kernels):
    (parts, quantization), part, raw = MLX_NANS[case]
    command = [*LOGITS, "--kernels", kernels]
    put_quantized(folder, tensors, parts, quantization)
    assert tenon.bounded(command, folder).code == 0
    dtype, shape, whole = parts[part]
    put_quantized(
        folder, tensors, parts | {part: (dtype, shape, raw + whole[len(raw) :])}, quantization
    )
    tenon.refused(command, folder, "NaN")


@pytest.mark.parametrize("kernels", KERNELS)
def test_text_before_the_nan_and_then_the_error(tenon, tmp_path, kernels):
    """The token " there" is of NaN: what came before it is said, and the exit code tells."""
    model = chain.make_chain_model(tmp_path / "model", ("Hello", " there", "!"))
    file = model.folder / "model.safetensors"
    t = Safetensors.read(file)
    at = 4 * chain.HIDDEN * model.ids["plain"][1]
    file.write_bytes(t.poked(EMBED, NAN * chain.HIDDEN, at).bytes())
    ended = tenon.run(["generate", "--kernels", kernels, "Hi"], model.folder)
    assert ended.code == 1 and "NaN" in ended.err, ended
    assert "!" not in ended.out and ended.err.count("\n") == 1, ended

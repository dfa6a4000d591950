"""Checkpoints that are compared, each with a twin that llama.cpp reads. All are made once, in
build/bench, from the default model: its GGUF file is Q4_1 with a Q8_0 embedding.
"""

import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from engines import ROOT, WORK

DEFAULT_MODEL = ROOT / "share/models/smollm2-135m-instruct-q4_1.gguf"


@dataclass(frozen=True)
class Twins:
    """The same weights for each engine; None where an engine has no format for them."""

    title: str
    tenon: Path
    llama: Path
    mlx: Path | None

    def tenon_bytes(self):
        files = self.tenon.glob("*.safetensors") if self.tenon.is_dir() else [self.tenon]
        return sum(file.stat().st_size for file in files)

    def path_for(self, engine):
        return {"Tenon": self.tenon, "llama.cpp": self.llama, "mlx-lm": self.mlx}[engine.name]


def converted(binary, source, name, *flags):
    folder = WORK / "models" / name
    if folder.exists() and folder.stat().st_mtime < source.stat().st_mtime:
        shutil.rmtree(folder)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [str(binary), "convert", "--model", str(source), "--out", str(folder), *flags],
            check=True,
        )
    return folder


def copy_fields(reader, writer, wanted):
    for field in reader.fields.values():
        if not wanted(field.name):
            continue
        array = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(
            field.name, field.contents(), field.types[0], field.types[-1] if array else None
        )


@contextmanager
def gguf_writer(target, architecture):
    """The file appears when it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".part")
    writer = gguf.GGUFWriter(unfinished, architecture)
    yield writer
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.rename(target)


def q8_0(source):
    """The default model with every matrix Q8_0."""
    target = WORK / "models/smollm2-q8_0.gguf"
    if target.exists():
        return target
    reader, kind = gguf.GGUFReader(source), gguf.GGMLQuantizationType.Q8_0
    own = ("general.architecture", "general.file_type")
    with gguf_writer(target, reader.get_field(own[0]).contents()) as writer:
        copy_fields(reader, writer, lambda name: not name.startswith("GGUF.") and name not in own)
        for tensor in reader.tensors:
            if len(tensor.shape) < 2:
                writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
                continue
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    return target


def random_q4_1(rng, rows, cols):
    """Blocks of 32: scale, minimum (f16), 16 bytes of nibbles; values around 0 of size 0.02."""
    blocks = rng.integers(0, 256, (rows, cols // 32, 20), dtype=np.uint8)
    blocks[..., :4] = np.array([0.005, -0.0375], np.float16).view(np.uint8)
    return blocks.reshape(rows, cols // 32 * 20)


def large(source):
    """Random weights in the shape of a 1.5B model, with the default model's words."""
    target = WORK / "models/random-1.5b-q4_1.gguf"
    if target.exists():
        return target
    width, ffn, layers, heads, kv_heads = 1536, 8960, 28, 12, 2
    kv_width = width // heads * kv_heads
    matrices = dict(
        attn_q=(width, width),
        attn_k=(kv_width, width),
        attn_v=(kv_width, width),
        attn_output=(width, width),
        ffn_gate=(ffn, width),
        ffn_up=(ffn, width),
        ffn_down=(width, ffn),
    )
    reader, rng = gguf.GGUFReader(source), np.random.default_rng(7)
    vocab = len(reader.get_field("tokenizer.ggml.tokens").contents())
    with gguf_writer(target, "llama") as writer:
        copy_fields(reader, writer, lambda name: name.startswith("tokenizer."))
        writer.add_embedding_length(width)
        writer.add_feed_forward_length(ffn)
        writer.add_block_count(layers)
        writer.add_head_count(heads)
        writer.add_head_count_kv(kv_heads)
        writer.add_rope_dimension_count(width // heads)
        writer.add_rope_freq_base(10000.0)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_context_length(8192)

        def add(name, *shape):
            if len(shape) == 1:
                return writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
            kind = gguf.GGMLQuantizationType.Q4_1
            return writer.add_tensor(f"{name}.weight", random_q4_1(rng, *shape), raw_dtype=kind)

        add("token_embd", vocab, width)
        add("output_norm", width)
        for layer in range(layers):
            for norm in ("attn_norm", "ffn_norm"):
                add(f"blk.{layer}.{norm}", width)
            for name, shape in matrices.items():
                add(f"blk.{layer}.{name}", *shape)
    return target


def make(name, binary, source):
    if name == "large":
        return Twins("1.5B shape, Q4_1", large(source), large(source), None)
    if name == "mlx8":
        mlx8 = converted(binary, source, "mlx-8bit", "--bits", "8")
        return Twins("MLX 8-bit", mlx8, q8_0(source), mlx8)
    # The GGUF file's own bits in MLX's layout, so llama.cpp's twin is the file itself.
    mlx4 = converted(binary, source, "mlx-4bit")
    if name == "mlx4":
        return Twins("MLX 4-bit", mlx4, source, mlx4)
    return Twins("GGUF Q4_1", source, source, mlx4)


NAMES = ["gguf", "mlx4", "mlx8", "large"]

"""What the suites of damaged files share: a runner that holds commands to the limits, and ways to damage."""

import json
import os
import re
import struct

import chain
import server as servers
from damaged import (
    FFN,
    HIDDEN,
    Launcher,
    Safetensors,
)

SECONDS_MAX = 5 * servers.PATIENCE
MORE_MB = 64  # than the same command takes with a good file
SPACE_MAX = 8 << 30  # of addresses: what is reserved and not yet touched counts here
SANITIZED = servers.PATIENCE > 1  # shadow memory would be measured instead
UP = "model.layers.1.mlp.up_proj.weight"
GATE = "model.layers.1.mlp.gate_proj.weight"
NORM = "model.norm.weight"
LAST = "model.layers.1.mlp.down_proj.weight"  # its bytes end the file
UP_BYTES = 4 * FFN * HIDDEN
NAN = struct.pack("<f", float("nan"))
INFO = ["info"]  # reads headers and small files
LOGITS = ["logits", "--ids", "1,2,3", "--steps", "2", "--out", "OUT"]  # reads all weights
GENERATE = ["generate", "--raw", "--max-tokens", "4", "--seed", "1", "ab"]
EACH_VERB = [INFO, LOGITS, GENERATE]
KERNELS = ["mlx", "tenon"]


def logits_of(*ids):
    return [",".join(map(str, ids)) if word == "1,2,3" else word for word in LOGITS]


# Tensors of a GGUF file are spoken of by the names that a folder would give them.
OTHER_NAMES = {
    "blk.1.ffn_up.weight": r"model\.layers\.1\.mlp\.up_proj\.weight",
    "output_norm.weight": r"model\.norm\.weight",
    r"(token_embd|output|blk\.\d+\.\w+)\S*\.weight": r"model\.\S*weight|lm_head\.weight|RoPE over",
}


def either_name(word):
    for stored, other in OTHER_NAMES.items():
        if word.startswith(stored):
            return f"{word}|{other}"
    return word


class Runner:
    """Runs commands and holds them to the limits of a damaged file."""

    def __init__(self, folder, good):
        self.launcher = Launcher()
        self.folder, self.good, self.good_mb = folder, good, {}
        self.made = folder / "made.safetensors"

    def run(self, command, model):
        self.made.unlink(missing_ok=True)
        words = [self.made if word == "OUT" else word for word in command]
        words = [servers.TENON, words[0], "--model", model, *words[1:]]
        space = None if SANITIZED else SPACE_MAX
        out, err = self.folder / "out", self.folder / "err"
        return self.launcher.run(words, out, err, 4 * SECONDS_MAX, space)

    def most_mb(self, command):
        """What it may hold: what it takes for a good model, and a bit."""
        key = tuple(command)
        if key not in self.good_mb:
            ended = self.run(command, self.good)
            assert ended.code == 0, ended
            self.good_mb[key] = ended.peak_mb
        return self.good_mb[key] + MORE_MB

    def bounded(self, command, model):
        """It ends by itself, soon, holding little; a failure is one line and nothing else."""
        most_mb = self.most_mb(command)
        ended = self.run(command, model)
        assert ended.code in (0, 1), ended
        assert ended.seconds < SECONDS_MAX, ended
        assert SANITIZED or ended.peak_mb < most_mb, (most_mb, ended)
        if ended.code == 1:
            assert ended.err.startswith("tenon: ") and ended.err.endswith("\n"), ended
            assert not re.search(r"[\x00-\x1f\x7f]", ended.err[:-1]), ended
            assert ended.out == "" and not self.made.exists(), ended
        return ended

    def refused(self, command, model, *words):
        """It is bounded and fails, in a line that has each of these regular expressions."""
        ended = self.bounded(command, model)
        assert ended.code == 1, (words, ended)
        for word in words:
            assert re.search(either_name(word), ended.err), (word, ended.err)


def verb_of(command):
    return command[0]


def rows(table):
    """name -> values as (name, value) rows."""
    return [(name, value) for name, values in table.items() for value in values]


def shown(value):
    """A value in the name of a test."""
    text = value if isinstance(value, str) else repr(value)
    if isinstance(value, bytes):
        text = "bytes"
    return re.sub(r"[^\w.,+=<>^-]", "", text)[:30] or "empty"


def in_words(field):
    """What names a field in a sentence too: num_key_value_heads, key/value heads."""
    others = {"count": "parts", "merges": "merge|Token"}
    return others.get(field, field.removeprefix("num_").replace("_", "."))


def offsets(t, name=UP):
    return t.header[name]["data_offsets"]


def nested(depth):
    return "[" * depth + "]" * depth


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 98362432\n"


# Files that are no regular files, or far larger than anything that belongs there.
def as_folder(path):
    path.unlink()
    path.mkdir()


def as_zeros(size):
    def make(path):
        path.write_bytes(b"")
        os.truncate(path, size)

    return make


def cut_rows(t, name, rows):
    """A tensor with fewer rows than it should have, in a header that is right about it."""
    entry = t.header[name]
    shape, (begin, end) = entry["shape"], entry["data_offsets"]
    end = begin + (end - begin) // shape[0] * rows
    return t.entry(name, shape=[rows, *shape[1:]], data_offsets=[begin, end])


EMBED, HEAD, QUERY = (
    "model.embed_tokens.weight",
    "lm_head.weight",
    "model.layers.0.self_attn.q_proj.weight",
)
ZEROS = bytes(4 * HIDDEN)


def quantized(t, **changes):
    """The tiny model with one matrix quantized; a change of None leaves a part out."""
    parts = {
        "weight": ("U32", [FFN, HIDDEN // 8], bytes(FFN * HIDDEN // 2)),
        "scales": ("F32", [FFN, HIDDEN // 32], struct.pack("<f", 0.01) * (FFN * HIDDEN // 32)),
        "biases": ("F32", [FFN, HIDDEN // 32], struct.pack("<f", -0.08) * (FFN * HIDDEN // 32)),
    } | changes
    out = t.without(UP)
    for part, stored in parts.items():
        out = out.appended(UP[:-6] + part, *stored) if stored else out
    return out


def put_quantized(folder, tensors, changes, quantization):
    values = json.loads((folder / "config.json").read_text())
    chain.put(folder, "config.json", values | {"quantization": quantization})
    (folder / "model.safetensors").write_bytes(quantized(tensors, **changes).bytes())


FIRST, SECOND = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
INDEX = "model.safetensors.index.json"


def edit(file, change):
    """Damage to a shard, or to what the index says."""

    def damage(folder):
        path = folder / file
        if file == INDEX:
            made = change(json.loads(path.read_text()))
            path.write_bytes(made if isinstance(made, bytes) else json.dumps(made).encode())
        else:
            made = change(Safetensors.read(path))
            path.write_bytes(made if isinstance(made, bytes) else made.bytes())

    return damage


def place(tensor, shard):
    """The index says that `tensor` is in `shard`."""
    return edit(INDEX, lambda index: index | {"weight_map": index["weight_map"] | {tensor: shard}})


WRONG = {
    "absent": "absent",
    "string": "64",
    "list": [64],
    "object": {"a": 64},
    "true": True,
    "negative": -2,
    "zero": 0,
    "fraction": 1.5,
    "1e300": 1e300,
    "2^31": 1 << 31,
    "2^40": 1 << 40,
    "2^63": 1 << 63,
    "-2^63": -(1 << 63),
    "2^64": 1 << 64,
}
SIZES = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
]


def put_config(folder, **changes):
    values = json.loads((folder / "config.json").read_text()) | changes
    chain.put(folder, "config.json", {k: v for k, v in values.items() if v != "absent"})


BLOCK_NORM, BLOCK_LAST = "output_norm.weight", "blk.1.ffn_down.weight"


def stored(mode, bits, group, scale):
    """Words of zeros, and scales (in affine modes biases too) that are the bytes `scale`."""
    parts = {"weight": ("U32", [FFN, HIDDEN * bits // 32], bytes(FFN * HIDDEN * bits // 8))}
    dtype = {1: "U8", 2: "F16", 4: "F32"}[len(scale)]
    shape, count = [FFN, HIDDEN // group], FFN * HIDDEN // group
    parts["scales"] = (dtype, shape, scale * count)
    parts["biases"] = (dtype, shape, scale * count) if mode == "affine" else None
    return parts, {"mode": mode, "bits": bits, "group_size": group}

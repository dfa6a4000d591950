"""Tiny model files of which every part can be written wrongly, and what a command on them costs.

The peak of a child counts what its parent held when it forked, so commands are started by a small
process of their own: this file run as a program. It therefore needs the standard library alone.
"""

import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import time
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

# --- what a command costs


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int  # negative: the signal that ended it
    seconds: float
    peak_mb: float  # most memory resident at a time
    out: str
    err: str


class Launcher:
    """Starts commands one at a time, each bounded in time and address space."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, command, out, err, seconds_max, space_max):
        job = {"command": [str(c) for c in command], "out": str(out), "err": str(err)}
        job |= {"seconds_max": seconds_max, "space_max": space_max}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        code, seconds, peak_kb = json.loads(self.process.stdout.readline())
        text = [Path(file).read_bytes().decode(errors="replace") for file in (out, err)]
        return Ended(code, seconds, peak_kb / 1024, *text)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def become(job):
    """In the child: its limits and files, then the command."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if job["space_max"]:
        resource.setrlimit(resource.RLIMIT_AS, (job["space_max"], job["space_max"]))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for fd, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), fd)
    os.execv(job["command"][0], job["command"])


def launch(job):
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            become(job)
        except OSError as error:
            os.write(2, str(error).encode())
        finally:
            os._exit(127)
    watch = os.pidfd_open(child)
    if not select.select([watch], [], [], job["seconds_max"])[0]:
        os.kill(child, signal.SIGKILL)
    os.close(watch)
    _, status, usage = os.wait4(child, 0)
    seconds = time.monotonic() - start
    return [os.waitstatus_to_exitcode(status), seconds, usage.ru_maxrss]


# --- a tiny llama

# Wide enough for a block of 256 in one row of the last matrix.
HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, CONTEXT = 64, 256, 2, 2, 1, 256
KV_DIM = KV_HEADS * HIDDEN // HEADS


def config(vocab_size, **changes):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HIDDEN // HEADS,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": vocab_size,
    } | changes


# GGUF name -> (Hugging Face name, shape); blk.N and model.layers.N are filled in by llama().
OUTER = {
    "token_embd": ("model.embed_tokens", ("vocabulary", HIDDEN)),
    "output_norm": ("model.norm", (HIDDEN,)),
    "output": ("lm_head", ("vocabulary", HIDDEN)),
}
BLOCK = {
    "attn_norm": ("input_layernorm", (HIDDEN,)),
    "attn_q": ("self_attn.q_proj", (HIDDEN, HIDDEN)),
    "attn_k": ("self_attn.k_proj", (KV_DIM, HIDDEN)),
    "attn_v": ("self_attn.v_proj", (KV_DIM, HIDDEN)),
    "attn_output": ("self_attn.o_proj", (HIDDEN, HIDDEN)),
    "ffn_norm": ("post_attention_layernorm", (HIDDEN,)),
    "ffn_gate": ("mlp.gate_proj", (FFN, HIDDEN)),
    "ffn_up": ("mlp.up_proj", (FFN, HIDDEN)),
    "ffn_down": ("mlp.down_proj", (HIDDEN, FFN)),
}


def names(gguf):
    """(name, shape) of every tensor as one of the two formats calls it."""
    pick = 0 if gguf else 1
    rows = [((name, hf), shape) for name, (hf, shape) in OUTER.items()]
    for i in range(LAYERS):
        rows += [
            ((f"blk.{i}.{name}", f"model.layers.{i}.{hf}"), shape)
            for name, (hf, shape) in BLOCK.items()
        ]
    return [(pair[pick] + ".weight", shape) for pair, shape in rows]


def size_of(shape):
    count = 1
    for dim in shape:
        count *= dim
    return count


def floats(count, scale, rng):
    return array("f", [rng.gauss(0, scale) for _ in range(count)]).tobytes()


def weights(vocab_size, gguf=False):
    """name -> (shape, float32 bytes)."""
    rng = Random(7)
    out = {}
    for name, shape in names(gguf):
        shape = tuple(vocab_size if dim == "vocabulary" else dim for dim in shape)
        ones = array("f", [1.0] * shape[0]).tobytes()
        scale = 1.0 if "embd" in name or "embed" in name else shape[-1] ** -0.5
        out[name] = (shape, ones if len(shape) == 1 else floats(size_of(shape), scale, rng))
    return out


# --- safetensors


@dataclass
class Safetensors:
    """A header and its data; each change is a copy, bytes() is the file."""

    header: dict
    data: bytes

    @staticmethod
    def of(tensors):
        """From name -> (shape, float32 bytes)."""
        return Safetensors.typed({name: ("F32", *rest) for name, rest in tensors.items()})

    @staticmethod
    def typed(tensors):
        """From name -> (dtype, shape, bytes)."""
        header, parts, at = {}, [], 0
        for name, (dtype, shape, raw) in tensors.items():
            offsets = [at, at + len(raw)]
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
            parts.append(raw)
            at += len(raw)
        return Safetensors(header, b"".join(parts))

    @staticmethod
    def read(path):
        raw = Path(path).read_bytes()
        length = int.from_bytes(raw[:8], "little")
        return Safetensors(json.loads(raw[8 : 8 + length]), raw[8 + length :])

    def text(self):
        return json.dumps(self.header, separators=(",", ":"))

    def bytes(self, text=None, length=None):
        """`text` instead of the header, `length` instead of its own."""
        raw = self.text() if text is None else text
        raw = raw if isinstance(raw, bytes) else raw.encode()
        return struct.pack("<Q", len(raw) if length is None else length) + raw + self.data

    def header_end(self):
        return 8 + len(self.text())

    def file_span(self, name):
        """Where a tensor's bytes lie in the file."""
        begin, end = self.header[name]["data_offsets"]
        return self.header_end() + begin, self.header_end() + end

    def entry(self, name, **changes):
        entry = {k: v for k, v in (self.header[name] | changes).items() if v != "absent"}
        return Safetensors(self.header | {name: entry}, self.data)

    def without(self, *dropped):
        kept = {name: entry for name, entry in self.header.items() if name not in dropped}
        return Safetensors(kept, self.data)

    def appended(self, name, dtype, shape, raw):
        """One more tensor; with a name that is there, instead of that one."""
        at = len(self.data)
        entry = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        return Safetensors(self.header | {name: entry}, self.data + raw)

    def poked(self, name, raw, at=0):
        """The first bytes of a tensor (or those from `at` on) are `raw`."""
        begin, end = self.header[name]["data_offsets"]
        begin += at
        assert begin + len(raw) <= end
        data = self.data[:begin] + raw + self.data[begin + len(raw) :]
        return Safetensors(self.header, data)


# --- GGUF

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = dict(
    zip((U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64), "BbHhIif?Qqd", strict=True)
)


def pack_string(text, length=None):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def pack_value(kind, value):
    """Stored bytes of one value; bytes are taken as they are."""
    if isinstance(value, bytes):
        return value
    return pack_string(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value)


def pack_array(kind, values, count=None):
    head = struct.pack("<IQ", kind, len(values) if count is None else count)
    return head + b"".join(pack_value(kind, value) for value in values)


@dataclass
class Tensor:
    name: object
    dims: list  # as stored: the innermost first
    kind: int = 0
    raw: bytes = b""
    offset: int | None = None  # None: where it lies
    num_dims: int | None = None  # None: as many as there are


@dataclass
class Gguf:
    """Metadata and tensors; each change is a copy, bytes() is the file."""

    values: list  # of (key, kind, value)
    tensors: list
    magic: bytes = b"GGUF"
    version: int = 3
    num_values: int | None = None
    num_tensors: int | None = None
    alignment: int = 32
    parts: dict = field(default_factory=dict)  # name of a part -> (begin, end), after bytes()

    def but(self, **changes):
        return Gguf(**({k: v for k, v in vars(self).items() if k != "parts"} | changes))

    def value(self, key, kind, value):
        """With this value, last if it is new."""
        others = [row for row in self.values if row[0] != key]
        at = next((i for i, row in enumerate(self.values) if row[0] == key), len(others))
        return self.but(values=others[:at] + [(key, kind, value)] + others[at:])

    def no_value(self, key):
        return self.but(values=[row for row in self.values if row[0] != key])

    def tensor(self, which, **changes):
        made = [Tensor(**(vars(t) | changes)) if t.name == which else t for t in self.tensors]
        return self.but(tensors=made)

    def no_tensor(self, name):
        return self.but(tensors=[t for t in self.tensors if t.name != name])

    def bytes(self):
        self.parts = {}
        out = bytearray()

        def put(part, raw):
            self.parts[part] = (len(out), len(out) + len(raw))
            out.extend(raw)

        def count(given, rows):
            return struct.pack("<Q", len(rows) if given is None else given)

        put("magic", self.magic)
        put("version", struct.pack("<I", self.version))
        put("number of tensors", count(self.num_tensors, self.tensors))
        put("number of values", count(self.num_values, self.values))
        for key, kind, value in self.values:
            packed = pack_string(key)
            put(f"{key}: length of the key", packed[:8])
            put(f"{key}: key", packed[8:])
            put(f"{key}: type", struct.pack("<I", kind))
            put(f"{key}: value", pack_value(kind, value))
        at = 0
        for t in self.tensors:
            packed = pack_string(t.name)
            put(f"{t.name}: length of the name", packed[:8])
            put(f"{t.name}: name", packed[8:])
            num = len(t.dims) if t.num_dims is None else t.num_dims
            put(f"{t.name}: number of dimensions", struct.pack("<I", num))
            put(f"{t.name}: dimensions", struct.pack(f"<{len(t.dims)}Q", *t.dims))
            put(f"{t.name}: type", struct.pack("<I", t.kind))
            put(f"{t.name}: offset", struct.pack("<Q", at if t.offset is None else t.offset))
            at += -(-len(t.raw) // self.alignment) * self.alignment
        put("padding", bytes(-len(out) % self.alignment))
        for t in self.tensors:
            put(f"{t.name}: data", t.raw)
            out.extend(bytes(-len(t.raw) % self.alignment))
        return bytes(out)


# Block types: name -> (id, elements, bytes, where float16 scales and minima are).
BLOCKS = {
    "Q4_0": (2, 32, 18, [0]),
    "Q4_1": (3, 32, 20, [0, 2]),
    "Q5_0": (6, 32, 22, [0]),
    "Q5_1": (7, 32, 24, [0, 2]),
    "Q8_0": (8, 32, 34, [0]),
    "Q2_K": (10, 256, 84, [80, 82]),
    "Q3_K": (11, 256, 110, [108]),
    "Q4_K": (12, 256, 144, [0, 2]),
    "Q5_K": (13, 256, 176, [0, 2]),
    "Q6_K": (14, 256, 210, [208]),
}


def blocks(kind, count):
    """`count` elements of a block type: random codes under small scales and minima."""
    _, elements, size, places = BLOCKS[kind]
    rng = Random(3)
    out = bytearray()
    for _ in range(count // elements):
        block = bytearray(rng.randbytes(size))
        for at in places:
            block[at : at + 2] = struct.pack("<e", 0.001)
        out += block
    return bytes(out)


def llama_gguf(tokens, types, end_id):
    """The tiny llama with a byte-level vocabulary."""
    tensors = [
        Tensor(name, list(reversed(shape)), raw=raw)
        for name, (shape, raw) in weights(len(tokens), gguf=True).items()
    ]
    values = [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, "tiny"),
        ("llama.context_length", U32, CONTEXT),
        ("llama.embedding_length", U32, HIDDEN),
        ("llama.block_count", U32, LAYERS),
        ("llama.feed_forward_length", U32, FFN),
        ("llama.attention.head_count", U32, HEADS),
        ("llama.attention.head_count_kv", U32, KV_HEADS),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("llama.rope.freq_base", F32, 10000.0),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "default"),
        ("tokenizer.ggml.tokens", ARRAY, pack_array(STRING, tokens)),
        ("tokenizer.ggml.token_type", ARRAY, pack_array(I32, types)),
        ("tokenizer.ggml.merges", ARRAY, pack_array(STRING, [])),
        ("tokenizer.ggml.eos_token_id", U32, end_id),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
    ]
    return Gguf(values, tensors)


def main():
    for line in sys.stdin:
        print(json.dumps(launch(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

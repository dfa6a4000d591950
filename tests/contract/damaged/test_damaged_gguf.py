"""A GGUF file that is cut, lies or is no such file is refused in seconds, by name."""

import os
import re
import struct

import pytest
import tenon as paths
from damaged import (
    ARRAY,
    BOOL,
    F32,
    F64,
    FFN,
    Gguf,
    HEADS,
    HIDDEN,
    I32,
    LAYERS,
    STRING,
    Tensor,
    U32,
    U64,
    U8,
    pack_array,
    pack_string,
)
from damaged_common import (
    BLOCK_LAST,
    BLOCK_NORM,
    INFO,
    POINTER,
    UP_BYTES,
    ZEROS,
    in_words,
    shown,
)

KEY, TOKENS = "llama.block_count", "tokenizer.ggml.tokens"
BLOCK_UP, BLOCK_GATE = "blk.1.ffn_up.weight", "blk.1.ffn_gate.weight"
GGUF_PARTS = ["magic", "version", "number of tensors", "number of values"]
GGUF_PARTS += [
    f"{key}: {part}"
    for key in (
        "general.architecture",
        KEY,
        TOKENS,
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.eos_token_id",
    )
    for part in ("length of the key", "key", "type", "value")
]
GGUF_PARTS += [
    f"{name}: {part}"
    for name in ("token_embd.weight", BLOCK_LAST)
    for part in (
        "length of the name",
        "name",
        "number of dimensions",
        "dimensions",
        "type",
        "offset",
        "data",
    )
]


@pytest.mark.parametrize("part", GGUF_PARTS)
def test_gguf_cut(tenon, good_gguf, gguf_path, part):
    whole = good_gguf.bytes()
    begin, end = good_gguf.parts[part]
    name, _, what = part.partition(": ")
    # Too few bytes for so many entries is seen before the entry itself.
    word = (
        f"{re.escape(name)}|tensors|metadata values" if what in ("value", "data", "offset") else ""
    )
    for at in {begin, (begin + end) // 2, end - 1}:
        gguf_path.write_bytes(whole[:at])
        tenon.refused(INFO, gguf_path, re.escape(str(gguf_path)), word)


def test_default_model_cut(tenon, gguf_path):
    """A real file: a vocabulary of 49,152 and 98 MB, of which only the front is there."""
    size = paths.DEFAULT_MODEL.stat().st_size
    with open(paths.DEFAULT_MODEL, "rb") as file:
        front = file.read(4 << 20)
    at = front.rindex(b".weight") + len(".weight")  # of the last tensor
    end = at + 4 + 8 * int.from_bytes(front[at : at + 4], "little") + 4 + 8
    path = re.escape(str(gguf_path))
    for at in [end * i // 8 for i in range(1, 8)] + [end - 1]:
        gguf_path.write_bytes(front[:at])
        tenon.refused(INFO, gguf_path, path)
    for at in (end, end + 100, (end + size) // 2, size - 1):
        gguf_path.write_bytes(front[:end])
        os.truncate(gguf_path, at)
        tenon.refused(INFO, gguf_path, path, r"tensor \S+\.weight")


def moved(g, name, by):
    """The tensor's offset, moved."""
    at = 0
    for t in g.tensors:
        if t.name == name:
            return g.tensor(name, offset=at + by)
        at += -(-len(t.raw) // g.alignment) * g.alignment
    raise KeyError(name)


def with_array(kind, values, count=None, key="some.list"):
    return lambda g: g.value(key, ARRAY, pack_array(kind, values, count))


def with_value(kind, value, key="some.value"):
    return lambda g: g.value(key, kind, value)


def with_tensor(**changes):
    return lambda g: g.tensor(BLOCK_UP, **changes)


def twice(g, key):
    return g.but(values=g.values + [row for row in g.values if row[0] == key])


def more_tensors(g, *tensors):
    return g.but(tensors=[*g.tensors, *tensors])


TINY = {"dims": [HIDDEN], "raw": ZEROS}
MANY = pack_array(U8, [0, 0])
GGUF = {
    # the first bytes
    "empty": (lambda g: b"", []),
    "magic-wrong": (lambda g: g.but(magic=b"GGML"), []),
    "magic-backwards": (lambda g: g.but(magic=b"FUGG"), []),
    "pointer": (lambda g: POINTER, []),
    "zeros": (lambda g: bytes(4096), []),
    "version-0": (lambda g: g.but(version=0), ["version 0"]),
    "version-1": (lambda g: g.but(version=1), ["version 1"]),
    "version-4": (lambda g: g.but(version=4), ["version 4"]),
    "version-2^32-1": (lambda g: g.but(version=(1 << 32) - 1), ["version"]),
    "big-endian": (lambda g: g.but(version=3 << 24), ["endian"]),
    # counts
    "no-values": (lambda g: g.but(num_values=0), []),
    "one-value-less": (lambda g: g.but(num_values=len(g.values) - 1), []),
    "one-value-more": (lambda g: g.but(num_values=len(g.values) + 1), []),
    "values-2^20": (lambda g: g.but(num_values=1 << 20), ["metadata"]),
    "values-2^32": (lambda g: g.but(num_values=1 << 32), ["metadata"]),
    "values-2^60": (lambda g: g.but(num_values=1 << 60), ["metadata"]),
    "values-2^64-1": (lambda g: g.but(num_values=(1 << 64) - 1), ["metadata"]),
    "no-tensors": (lambda g: g.but(num_tensors=0), ["token_embd.weight"]),
    "one-tensor-less": (lambda g: g.but(num_tensors=len(g.tensors) - 1), []),
    "one-tensor-more": (lambda g: g.but(num_tensors=len(g.tensors) + 1), []),
    "tensors-2^20": (lambda g: g.but(num_tensors=1 << 20), ["tensors"]),
    "tensors-2^32": (lambda g: g.but(num_tensors=1 << 32), ["tensors"]),
    "tensors-2^60": (lambda g: g.but(num_tensors=1 << 60), ["tensors"]),
    "tensors-2^64-1": (lambda g: g.but(num_tensors=(1 << 64) - 1), ["tensors"]),
    # metadata
    "key-empty": (with_value(U32, 1, key=""), ["key"]),
    "key-of-100-KB": (with_value(U32, 1, key="k" * 100_000), ["key"]),
    "key-twice": (lambda g: twice(g, KEY), [KEY]),
    "key-of-a-list-twice": (lambda g: twice(g, TOKENS), [TOKENS]),
    "value-type-13": (with_value(13, bytes(8)), ["some.value", "13"]),
    "value-type-2^32-1": (with_value((1 << 32) - 1, bytes(8)), ["some.value"]),
    "value-boolean-2": (with_value(BOOL, b"\2"), ["some.value"]),
    "string-2^20": (with_value(STRING, pack_string("x", 1 << 20)), ["some.value"]),
    "string-2^40": (with_value(STRING, pack_string("x", 1 << 40)), ["some.value"]),
    "string-2^63": (with_value(STRING, pack_string("x", 1 << 63)), ["some.value"]),
    "string-2^64-1": (with_value(STRING, pack_string("x", (1 << 64) - 1)), ["some.value"]),
    "list-2^20": (with_array(U32, [1, 2], 1 << 20), ["some.list"]),
    "list-2^40": (with_array(U8, [1, 2], 1 << 40), ["some.list"]),
    "list-2^62+1": (with_array(U32, [1, 2], (1 << 62) + 1), ["some.list"]),
    "list-2^64-1": (with_array(U8, [1, 2], (1 << 64) - 1), ["some.list"]),
    "list-of-strings-2^30": (with_array(STRING, ["a", "b"], 1 << 30), ["some.list"]),
    "list-of-strings-2^61": (with_array(STRING, ["a", "b"], 1 << 61), ["some.list"]),
    "list-of-strings-one-2^63": (with_array(STRING, [pack_string("a", 1 << 63)]), ["some.list"]),
    "list-of-type-13": (with_array(13, [bytes(4)]), ["some.list", "13"]),
    "list-of-lists": (with_array(ARRAY, [MANY, MANY]), ["some.list"]),
    "list-of-lists-2^60": (with_array(ARRAY, [MANY], 1 << 60), ["some.list"]),
    "list-of-lists-deep": (
        with_value(ARRAY, struct.pack("<IQ", ARRAY, 1) * 100_000),
        ["some.value"],
    ),
    "list-of-empty-lists-2^60": (with_array(ARRAY, [], 1 << 60), ["some.list"]),
    # alignment
    "alignment-0": (with_value(U32, 0, key="general.alignment"), ["general.alignment"]),
    "alignment-3": (with_value(U32, 3, key="general.alignment"), ["general.alignment"]),
    "alignment-33": (with_value(U32, 33, key="general.alignment"), ["general.alignment"]),
    "alignment-2^31": (with_value(U32, 1 << 31, key="general.alignment"), ["general.alignment"]),
    "alignment-2^63": (with_value(U64, 1 << 63, key="general.alignment"), ["general.alignment"]),
    "alignment-negative": (with_value(I32, -32, key="general.alignment"), ["general.alignment"]),
    "alignment-a-string": (
        with_value(STRING, "32", key="general.alignment"),
        ["general.alignment"],
    ),
    "alignment-not-the-files": (
        with_value(U32, 1 << 20, key="general.alignment"),
        [r"tensor \S+\.weight"],
    ),
    # tensors
    "tensor-name-empty": (lambda g: more_tensors(g, Tensor("", **TINY)), ["tensor"]),
    "tensor-name-2^40": (with_tensor(name=b"\0" * 8), []),
    "tensor-name-not-known": (
        lambda g: more_tensors(g, Tensor("blk.0.more.weight", **TINY)),
        ["blk.0.more.weight"],
    ),
    "tensor-name-of-two-lines": (
        lambda g: more_tensors(g, Tensor("a\nb\x1b[31m.weight", **TINY)),
        [r"a.b"],
    ),
    "tensor-name-not-utf-8": (
        lambda g: more_tensors(g, Tensor(b"a\xff\xfe.weight", **TINY)),
        ["tensor"],
    ),
    "tensor-name-of-1-MB": (lambda g: more_tensors(g, Tensor("a" * 1_000_000, **TINY)), ["aaaa"]),
    "tensor-of-a-layer-too-many": (
        lambda g: more_tensors(g, Tensor("blk.2.attn_norm.weight", **TINY)),
        ["blk.2.attn_norm.weight"],
    ),
    "tensor-of-layer-01": (
        lambda g: more_tensors(g, Tensor("blk.01.attn_norm.weight", **TINY)),
        ["blk.01.attn_norm.weight"],
    ),
    "tensor-of-layer-2^64": (
        lambda g: more_tensors(g, Tensor("blk.18446744073709551616.attn_norm.weight", **TINY)),
        ["blk.18446744073709551616.attn_norm.weight"],
    ),
    "tensor-twice": (lambda g: more_tensors(g, Tensor(BLOCK_NORM, **TINY)), [BLOCK_NORM]),
    "tensor-absent": (lambda g: g.no_tensor(BLOCK_UP), [BLOCK_UP]),
    "norm-absent": (lambda g: g.no_tensor(BLOCK_NORM), [BLOCK_NORM]),
    "embedding-absent": (lambda g: g.no_tensor("token_embd.weight"), ["token_embd.weight"]),
    "type-unknown": (with_tensor(kind=99), [BLOCK_UP, "99"]),
    "type-removed": (with_tensor(kind=4), [BLOCK_UP, "4"]),
    "type-2^32-1": (with_tensor(kind=(1 << 32) - 1), [BLOCK_UP]),
    "type-not-built": (with_tensor(kind=16), [BLOCK_UP, "IQ2_XXS"]),
    "type-of-integers": (with_tensor(kind=26), [BLOCK_UP]),
    "type-of-blocks": (
        with_tensor(kind=8, raw=bytes(FFN * HIDDEN // 32 * 34), dims=[FFN, HIDDEN]),
        [BLOCK_UP],
    ),
    "norm-of-blocks": (
        lambda g: g.tensor(BLOCK_NORM, kind=8, raw=bytes(HIDDEN // 32 * 34)),
        [BLOCK_NORM],
    ),
    "rows-of-half-a-block": (
        with_tensor(kind=12, raw=bytes(FFN * HIDDEN // 256 * 144)),
        [BLOCK_UP],
    ),
    "dims-transposed": (with_tensor(dims=[FFN, HIDDEN]), [BLOCK_UP]),
    "dims-one-row-less": (with_tensor(dims=[HIDDEN, FFN - 1]), [BLOCK_UP]),
    "dims-flat": (with_tensor(dims=[HIDDEN * FFN]), [BLOCK_UP]),
    "dims-three": (with_tensor(dims=[HIDDEN, FFN, 1]), [BLOCK_UP]),
    "dims-none": (with_tensor(dims=[]), [BLOCK_UP]),
    "dims-zero": (with_tensor(dims=[HIDDEN, 0]), [BLOCK_UP]),
    "dims-five": (with_tensor(dims=[HIDDEN, FFN, 1, 1, 1]), [BLOCK_UP, "5"]),
    "dims-2^32-1": (with_tensor(num_dims=(1 << 32) - 1), [BLOCK_UP]),
    "dims-of-1-TB": (with_tensor(dims=[HIDDEN, 1 << 32]), [BLOCK_UP]),
    "dims-overflow": (with_tensor(dims=[1 << 32, 1 << 32]), [BLOCK_UP]),
    "dims-overflow-in-bytes": (with_tensor(dims=[1 << 31, 1 << 31]), [BLOCK_UP]),
    "dims-2^63": (with_tensor(dims=[1 << 63, 2]), [BLOCK_UP]),
    "dims-2^64-1": (with_tensor(dims=[(1 << 64) - 1, 1]), [BLOCK_UP]),
    "dims-0-times-2^63": (with_tensor(dims=[1 << 63, 0]), [BLOCK_UP]),
    "embedding-of-no-rows": (
        lambda g: g.tensor("token_embd.weight", dims=[HIDDEN, 0]),
        ["token_embd.weight"],
    ),
    "embedding-too-short": (
        lambda g: g.tensor("token_embd.weight", dims=[HIDDEN, 100]),
        ["token_embd.weight|tokens"],
    ),
    "norm-too-short": (lambda g: g.tensor(BLOCK_NORM, dims=[HIDDEN - 1]), [BLOCK_NORM]),
    # where tensors lie
    "offset-odd": (lambda g: moved(g, BLOCK_UP, 1), [BLOCK_UP]),
    "offset-not-aligned": (lambda g: moved(g, BLOCK_UP, 4), [BLOCK_UP]),
    "offset-overlaps": (lambda g: moved(g, BLOCK_UP, -32), [BLOCK_UP, BLOCK_GATE]),
    "offset-of-another": (lambda g: moved(g, BLOCK_UP, -UP_BYTES), [BLOCK_UP, BLOCK_GATE]),
    "offset-past-the-end": (lambda g: moved(g, BLOCK_LAST, 32), [BLOCK_LAST]),
    "offset-1-TB": (with_tensor(offset=1 << 40), [BLOCK_UP]),
    "offset-wraps": (with_tensor(offset=(1 << 64) - 32), [BLOCK_UP]),
    "offset-2^63": (with_tensor(offset=1 << 63), [BLOCK_UP]),
}


@pytest.mark.parametrize("case", GGUF)
def test_gguf(tenon, good_gguf, gguf_path, case):
    damage, words = GGUF[case]
    made = damage(good_gguf)
    gguf_path.write_bytes(made.bytes() if isinstance(made, Gguf) else made)
    tenon.refused(INFO, gguf_path, re.escape(str(gguf_path)), *words)


ARCH_KEYS = {
    "llama.embedding_length": HIDDEN,
    "llama.block_count": LAYERS,
    "llama.feed_forward_length": FFN,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": HEADS,
    "llama.context_length": 256,
}
BAD_VALUES = {
    "string": (STRING, "64"),
    "float": (F32, 64.0),
    "boolean": (BOOL, True),
    "list": (ARRAY, pack_array(U32, [64, 64])),
    "negative": (I32, -2),
    "zero": (U32, 0),
    "2^32-1": (U32, (1 << 32) - 1),
    "2^63": (U64, 1 << 63),
}
GGUF_VALUES = [(key, *value) for key in ARCH_KEYS for value in BAD_VALUES.values()]
GGUF_VALUES += [
    ("general.architecture", STRING, "no-such-architecture"),
    ("general.architecture", STRING, ""),
    ("general.architecture", U32, 1),
    ("llama.attention.layer_norm_rms_epsilon", F32, float("nan")),
    ("llama.attention.layer_norm_rms_epsilon", F32, float("inf")),
    ("llama.attention.layer_norm_rms_epsilon", F32, -1.0),
    ("llama.attention.layer_norm_rms_epsilon", STRING, "1e-5"),
    ("llama.rope.freq_base", F32, float("nan")),
    ("llama.rope.freq_base", F32, 0.0),
    ("llama.rope.freq_base", U32, 10000),
    ("llama.rope.dimension_count", U32, 7),
    ("llama.rope.scaling.type", STRING, "no-such-rule"),
    ("llama.rope.scaling.factor", F64, float("inf")),
    ("llama.attention.key_length", U32, 1 << 30),
    ("llama.attention.value_length", U32, 16),
    ("llama.expert_count", U32, 8),
    ("llama.vocab_size", U32, 1 << 30),
    ("llama.vocab_size", U32, 1),
    ("split.count", U32, 3),
    ("tokenizer.ggml.model", STRING, "no-such-model"),
    ("tokenizer.ggml.model", U32, 1),
    ("tokenizer.ggml.pre", STRING, "no-such-rule"),
    ("tokenizer.ggml.tokens", ARRAY, pack_array(STRING, [])),
    ("tokenizer.ggml.tokens", ARRAY, pack_array(STRING, ["a"] * 300)),
    ("tokenizer.ggml.tokens", ARRAY, pack_array(U32, range(262))),
    ("tokenizer.ggml.tokens", STRING, "a b c"),
    ("tokenizer.ggml.token_type", ARRAY, pack_array(I32, [1])),
    ("tokenizer.ggml.token_type", ARRAY, pack_array(STRING, ["1"] * 262)),
    ("tokenizer.ggml.scores", ARRAY, pack_array(F32, [0.0])),
    ("tokenizer.ggml.merges", ARRAY, pack_array(STRING, ["a"])),
    ("tokenizer.ggml.merges", ARRAY, pack_array(STRING, ["a zzzz"])),
    ("tokenizer.ggml.merges", ARRAY, pack_array(U8, [1])),
    ("tokenizer.ggml.eos_token_id", U32, 5000),
    ("tokenizer.ggml.eos_token_id", STRING, "</s>"),
    ("tokenizer.ggml.bos_token_id", U64, 1 << 40),
    ("tokenizer.ggml.add_bos_token", U32, 1),
    ("tokenizer.chat_template", U32, 1),
    ("tokenizer.chat_template", STRING, "{% for m in messages %}"),
]


@pytest.mark.parametrize("key, kind, value", GGUF_VALUES, ids=shown)
def test_gguf_value(tenon, good_gguf, gguf_path, key, kind, value):
    gguf_path.write_bytes(good_gguf.value(key, kind, value).bytes())
    word = re.escape(key) if key in ARCH_KEYS else in_words(key.rpartition(".")[2])
    tenon.refused(INFO, gguf_path, re.escape(str(gguf_path)), word)


# Without head_count_kv there are as many as heads.
NEEDED = [key for key in ARCH_KEYS if not key.endswith("_kv")]


@pytest.mark.parametrize("key", [*NEEDED, "general.architecture", TOKENS])
def test_gguf_value_absent(tenon, good_gguf, gguf_path, key):
    gguf_path.write_bytes(good_gguf.no_value(key).bytes())
    tenon.refused(INFO, gguf_path, re.escape(str(gguf_path)), re.escape(key))


GGUF_OF_ANOTHER = [
    ("llama.embedding_length", 32),
    ("llama.embedding_length", 128),
    ("llama.embedding_length", 1 << 24),
    ("llama.block_count", LAYERS - 1),
    ("llama.block_count", LAYERS + 1),
    ("llama.block_count", 5000),
    ("llama.feed_forward_length", 32),
    ("llama.feed_forward_length", 1 << 24),
    ("llama.attention.head_count", 64),
    ("llama.attention.head_count", 65536),
    ("llama.attention.head_count_kv", HEADS),
    ("llama.attention.key_length", 1 << 20),
]


@pytest.mark.parametrize("key, value", GGUF_OF_ANOTHER)
def test_gguf_of_another_model(tenon, good_gguf, gguf_path, key, value):
    gguf_path.write_bytes(good_gguf.value(key, U32, value).bytes())
    name = r"(token_embd|output|blk\.\d+\.\w+)\S*\.weight"
    word = rf"{name}|{re.escape(key)}|heads for \d+ embedding"
    tenon.refused(INFO, gguf_path, re.escape(str(gguf_path)), word)

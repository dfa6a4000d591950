"""Damaged checkpoints (B39) through `tenon info`, `generate` and `logits`: refused in seconds, exit
code 1, one line that names file and tensor (or key), and no memory by the false size. Against the
real program.

Each row edits a copy of a small good model; the good ones must load, so a row cannot pass by
accident.
"""

import json
import resource
import shutil
import struct
import subprocess

import numpy as np
import pytest
import server as servers
from safetensors.numpy import load_file, save_file

LAYER = "model.layers.0."
MEMORY_BYTES = 8 << 30  # address space; MLX maps some by itself
FALSE_SIZE = 1 << 60
LOAD_S = 20


def tenon(*args):
    """With an address space that a false size does not fit into, except under sanitizers, which
    need it all.
    """

    def limit():
        if servers.PATIENCE == 1:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    done = subprocess.run(
        [str(servers.TENON), *map(str, args)],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=LOAD_S * servers.PATIENCE,
        preexec_fn=limit,
    )
    return (
        done.returncode,
        done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
    )


def refused(model, *names, verbs=("info", "generate")):
    for verb in verbs:
        code, out, err = tenon(
            verb, "--model", model, *(["--raw", "hi"] if verb == "generate" else [])
        )
        assert code == 1, f"{verb}: exit code {code}, stdout {out[-500:]!r}, stderr {err!r}"
        assert len(err.strip().splitlines()) == 1, f"{verb}: not one line: {err!r}"
        for name in names:
            assert name in err, f"{verb}: the message does not name {name!r}: {err!r}"


# --- safetensors


@pytest.fixture
def copy(chain_model, tmp_path):
    return shutil.copytree(chain_model.folder, tmp_path / "model")


def read(folder):
    raw = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def write(folder, header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def on_header(edit):
    """A damage that changes the header's object."""

    def damage(folder):
        header, data = read(folder)
        write(folder, edit(header) or header, data)

    return damage


def on_bytes(edit):
    def damage(folder):
        path = folder / "model.safetensors"
        path.write_bytes(edit(path.read_bytes()))

    return damage


def on_tensors(edit):
    def damage(folder):
        tensors = load_file(folder / "model.safetensors")
        edit(tensors)
        save_file(tensors, folder / "model.safetensors")

    return damage


def on_config(**changes):
    def damage(folder):
        config = json.loads((folder / "config.json").read_text()) | changes
        (folder / "config.json").write_text(
            json.dumps({k: v for k, v in config.items() if v is not ...})
        )

    return damage


def set_range(header, name, begin, end):
    header[name]["data_offsets"] = [begin, end]


NORM, HEAD = "model.norm.weight", "lm_head.weight"
FILE = "model.safetensors"


def huge_shape(header):
    header[NORM]["shape"] = [1000, 1000]
    begin = header[NORM]["data_offsets"][0]
    set_range(header, NORM, begin, begin + 4)


def overlap(header):
    header[NORM]["data_offsets"] = header[LAYER + "input_layernorm.weight"]["data_offsets"]


DAMAGES = [
    # name, damage, what the message names
    ("shape beyond its bytes", on_header(huge_shape), [FILE, NORM]),
    ("end before begin", on_header(lambda h: set_range(h, NORM, 1024, 0)), [FILE, NORM]),
    ("overlap", on_header(overlap), [FILE]),
    (
        "offset past the file",
        on_header(lambda h: set_range(h, NORM, FALSE_SIZE, FALSE_SIZE + 1024)),
        [FILE, NORM],
    ),
    ("negative offset", on_header(lambda h: set_range(h, NORM, -1024, 0)), [FILE, NORM]),
    (
        "shape product overflows",
        on_header(lambda h: h[NORM].update(shape=[2**32, 2**32, 4])),
        [FILE, NORM],
    ),
    ("negative shape", on_header(lambda h: h[NORM].update(shape=[-256])), [FILE, NORM]),
    ("unknown dtype", on_header(lambda h: h[NORM].update(dtype="F99")), [FILE, NORM]),
    ("wrong dtype for the bytes", on_header(lambda h: h[NORM].update(dtype="F16")), [FILE, NORM]),
    ("no dtype", on_header(lambda h: h[NORM].pop("dtype") and None), [FILE, NORM]),
    ("an entry that is a list", on_header(lambda h: h.update({NORM: []})), [FILE, NORM]),
    ("header length 2^60", on_bytes(lambda b: struct.pack("<Q", FALSE_SIZE) + b[8:]), [FILE]),
    ("header length 0", on_bytes(lambda b: struct.pack("<Q", 0) + b[8:]), [FILE]),
    ("header length past the end", on_bytes(lambda b: struct.pack("<Q", len(b)) + b[8:]), [FILE]),
    ("header not JSON", on_bytes(lambda b: b[:8] + b"!" + b[9:]), [FILE]),
    ("header not an object", lambda f: write(f, b"[1, 2]", b""), [FILE]),
    ("header 10,000 deep", lambda f: write(f, b'{"a":' * 10_000, b""), [FILE]),
    ("cut at half", on_bytes(lambda b: b[: len(b) // 2]), [FILE]),
    ("cut by a byte", on_bytes(lambda b: b[:-1]), [FILE]),
    ("cut in the header", on_bytes(lambda b: b[:100]), [FILE]),
    ("seven bytes", on_bytes(lambda b: b[:7]), [FILE]),
    ("empty file", on_bytes(lambda b: b""), [FILE]),
    ("no weights", lambda f: (f / FILE).unlink(), ["safetensors"]),
    ("a million layers in config", on_config(num_hidden_layers=1_000_000), ["num_hidden_layers"]),
    ("no config", lambda f: (f / "config.json").unlink(), ["config.json"]),
    ("config not JSON", lambda f: (f / "config.json").write_text("{"), ["config.json"]),
    ("config a list", lambda f: (f / "config.json").write_text("[]"), ["config.json"]),
    ("no model_type", on_config(model_type=...), ["model_type"]),
    ("unknown model_type", on_config(model_type="no_such_family"), ["no_such_family"]),
    ("no hidden_size", on_config(hidden_size=...), ["hidden_size"]),
    ("hidden_size in words", on_config(hidden_size="big"), ["hidden_size"]),
    ("hidden_size huge", on_config(hidden_size=2**62), ["hidden_size"]),
    ("heads of zero", on_config(num_attention_heads=0), ["num_attention_heads"]),
]

# Whole files whose tensors are not those that the config asks for.
UNFIT = [
    ("tensor missing", on_tensors(lambda t: t.pop(NORM)), [NORM]),
    ("head missing", on_tensors(lambda t: t.pop(HEAD)), [HEAD]),
    ("tensor too many", on_tensors(lambda t: t.update(stray=np.zeros(3, "f4"))), ["stray"]),
    ("misshapen norm", on_tensors(lambda t: t.update({NORM: np.ones(255, "f4")})), [NORM]),
    (
        "misshapen projection",
        on_tensors(
            lambda t: t.update({LAYER + "self_attn.k_proj.weight": np.zeros((128, 256), "f4")})
        ),
        ["k_proj"],
    ),
    (
        "transposed down",
        on_tensors(lambda t: t.update({LAYER + "mlp.down_proj.weight": np.zeros((64, 256), "f4")})),
        ["down_proj"],
    ),
    ("a layer too many in config", on_config(num_hidden_layers=2), ["model.layers.1."]),
    ("another vocabulary in config", on_config(vocab_size=7), ["embed_tokens"]),
    (
        "heads that do not divide",
        on_config(num_attention_heads=4, num_key_value_heads=3),
        ["config.json", "key/value heads"],
    ),
]


def test_the_good_model_loads(copy):
    code, out, err = tenon("info", "--model", copy)
    assert code == 0 and "llama" in out, err
    code, out, err = tenon("generate", "--model", copy, "--raw", "--temperature", "0", "hi\n")
    assert (code, out) == (0, "Hello there!\n"), err


@pytest.mark.parametrize("name, damage, names", DAMAGES, ids=[d[0] for d in DAMAGES])
def test_damaged_directories(copy, name, damage, names):
    damage(copy)
    refused(copy, *names)


@pytest.mark.parametrize("name, damage, names", UNFIT, ids=[d[0] for d in UNFIT])
def test_tensors_that_do_not_fit_the_config(copy, name, damage, names):
    damage(copy)
    refused(copy, *names, verbs=("generate",))


@pytest.mark.parametrize("name, damage, names", UNFIT, ids=[d[0] for d in UNFIT])
def test_info_says_so_too(copy, name, damage, names):
    """It tells how a model will run or why it is refused, so it must not promise what generate
    refuses.
    """
    damage(copy)
    refused(copy, *names, verbs=("info",))


@pytest.mark.parametrize(
    "name, text",
    [
        ("cut", '{"version": "1.0", "mod'),
        ("list", "[]"),
        ("empty", ""),
        ("no model", '{"version": "1.0"}'),
    ],
)
def test_damaged_tokenizers(copy, name, text):
    (copy / "tokenizer.json").write_text(text)
    refused(copy, "tokenizer", verbs=("generate",))


# --- shards


def shard(folder, index=True):
    """Splits the good model in two, with an index."""
    tensors = load_file(folder / FILE)
    (folder / FILE).unlink()
    parts, names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"), sorted(
        tensors
    )
    where = {name: parts[i % 2] for i, name in enumerate(names)}
    for part in parts:
        save_file({n: tensors[n] for n in names if where[n] == part}, folder / part)
    if index:
        write_index(folder, where)
    return parts, where


def write_index(folder, where):
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": where})
    )


@pytest.mark.parametrize("index", [True, False])
def test_shards_load(copy, index):
    shard(copy, index)
    code, out, err = tenon("generate", "--model", copy, "--raw", "--temperature", "0", "hi\n")
    assert (code, out) == (0, "Hello there!\n"), err


def test_a_stray_file_beside_an_index_is_ignored(copy):
    shard(copy)
    save_file({"stray": np.zeros(3, "f4")}, copy / "other.safetensors")
    code, _, err = tenon("generate", "--model", copy, "--raw", "--max-tokens", "1", "hi\n")
    assert code == 0, err


def test_an_absent_shard_is_named(copy):
    parts, _ = shard(copy)
    (copy / parts[1]).unlink()
    refused(copy, parts[1])


def test_an_absent_shard_without_an_index(copy):
    parts, where = shard(copy, index=False)
    assert where["model.embed_tokens.weight"] == parts[1]
    (copy / parts[1]).unlink()
    refused(copy, parts[1], str(copy))


def test_an_index_that_names_an_absent_tensor(copy):
    parts, where = shard(copy)
    write_index(copy, where | {"model.layers.9.ghost.weight": parts[0]})
    refused(copy, "model.layers.9.ghost.weight", parts[0])


def test_an_index_that_points_to_the_wrong_shard(copy):
    parts, where = shard(copy)
    write_index(copy, where | {NORM: parts[where[NORM] == parts[0]]})
    refused(copy, NORM)


@pytest.mark.parametrize("target", ["../outside.safetensors", "/etc/hostname"])
def test_an_index_that_leaves_the_folder(copy, target):
    _, where = shard(copy)
    shutil.copy(copy / where[NORM], copy.parent / "outside.safetensors")
    write_index(copy, where | {NORM: target})
    refused(copy, "index.json")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "{}"]
)
def test_a_damaged_index(copy, text):
    shard(copy)
    (copy / "model.safetensors.index.json").write_text(text)
    refused(copy, "index.json")


# --- GGUF, written here piece by piece

U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5
TOKENS = ["<|end|>", *[chr(c) for c in range(33, 127)], "ab"]
WIDTH, FEED = 64, 64


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def strings(values):
    return struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values))


def good_values():
    """Metadata of a one-layer llama, as key -> (type, bytes)."""
    numbers = {
        "context_length": 256,
        "embedding_length": WIDTH,
        "block_count": 1,
        "feed_forward_length": FEED,
        "attention.head_count": 2,
        "attention.head_count_kv": 2,
        "rope.dimension_count": 32,
    }
    values = {"general.architecture": (STRING, text("llama"))}
    values |= {f"llama.{k}": (U32, struct.pack("<I", v)) for k, v in numbers.items()}
    values["llama.attention.layer_norm_rms_epsilon"] = (F32, struct.pack("<f", 1e-5))
    values["tokenizer.ggml.model"] = (STRING, text("gpt2"))
    values["tokenizer.ggml.pre"] = (STRING, text("smollm"))
    values["tokenizer.ggml.tokens"] = (ARRAY, strings(TOKENS))
    kinds = [3] + [1] * (len(TOKENS) - 1)
    values["tokenizer.ggml.token_type"] = (
        ARRAY,
        struct.pack(f"<IQ{len(kinds)}i", I32, len(kinds), *kinds),
    )
    values["tokenizer.ggml.merges"] = (ARRAY, strings(["a b"]))
    values["tokenizer.ggml.eos_token_id"] = (U32, struct.pack("<I", 0))
    return values


def good_tensors():
    shapes = {
        "token_embd": (WIDTH, len(TOKENS)),
        "output_norm": (WIDTH,),
        "blk.0.attn_norm": (WIDTH,),
        "blk.0.ffn_norm": (WIDTH,),
        "blk.0.ffn_gate": (WIDTH, FEED),
        "blk.0.ffn_up": (WIDTH, FEED),
        "blk.0.ffn_down": (FEED, WIDTH),
        "blk.0.attn_output": (WIDTH, WIDTH),
        **{f"blk.0.attn_{p}": (WIDTH, WIDTH) for p in "qkv"},
    }
    return [[f"{name}.weight", shape, 0, None] for name, shape in shapes.items()]


def gguf(values=None, tensors=None, magic=b"GGUF", version=3, counts=None):
    values = good_values() if values is None else values
    tensors = good_tensors() if tensors is None else tensors
    counts = counts or (len(tensors), len(values))
    out = magic + struct.pack("<IQQ", version, *counts)
    for key, (kind, raw) in values.items():
        out += text(key) + struct.pack("<I", kind) + raw
    at = 0
    for name, shape, kind, offset in tensors:
        out += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        out += struct.pack("<IQ", kind, at if offset is None else offset)
        size = int(np.prod(shape, dtype=object))
        at += 4 * size if size < 1 << 20 else 0
    out += b"\0" * (-len(out) % 32)
    return out + np.random.default_rng(3).standard_normal(at // 4).astype("<f4").tobytes()


def with_value(key, kind, raw):
    return lambda: gguf(values=good_values() | {key: (kind, raw)})


def without_value(key):
    return lambda: gguf(values={k: v for k, v in good_values().items() if k != key})


def with_tensor(index, at, value):
    def build():
        tensors = good_tensors()
        tensors[index][at] = value
        return gguf(tensors=tensors)

    return build


def sections():
    """Where the good file's sections end, roughly: header, values, tensor table, data."""
    whole = gguf()
    table = whole.index(b"token_embd.weight")
    return {
        "magic": 2,
        "version": 6,
        "counts": 20,
        "first value": 40,
        "values": table // 2,
        "values' end": table - 10,
        "table": table + 40,
        "data": len(whole) // 2,
        "a byte": len(whole) - 1,
    }


BIG = struct.pack("<Q", FALSE_SIZE)
GGUFS = [
    ("magic", lambda: gguf(magic=b"GGML"), []),
    ("version", lambda: gguf(version=77), []),
    ("2^60 values", lambda: gguf(counts=(12, FALSE_SIZE)), []),
    ("2^60 tensors", lambda: gguf(counts=(FALSE_SIZE, len(good_values()))), []),
    (
        "array of 2^60",
        with_value("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, FALSE_SIZE)),
        ["tokens"],
    ),
    ("array of 2^60 bytes", with_value("x.y", ARRAY, struct.pack("<IQ", 0, FALSE_SIZE)), ["x.y"]),
    ("string of 2^60", with_value("general.name", STRING, BIG), ["general.name"]),
    ("key of 2^60", lambda: gguf(values={}, counts=(11, 1))[:24] + BIG + b"x" * 64, []),
    ("unknown value type", with_value("x.y", 99, b"\0" * 8), ["x.y"]),
    (
        "array of arrays",
        with_value("x.y", ARRAY, struct.pack("<IQIQ", ARRAY, 1, ARRAY, 1) * 3),
        ["x.y"],
    ),
    ("empty key", with_value("", U32, b"\0" * 4), []),
    ("unknown tensor type", with_tensor(0, 2, 999), ["token_embd.weight"]),
    ("tensor offset past the file", with_tensor(0, 3, FALSE_SIZE), ["token_embd.weight"]),
    ("tensor offset not aligned", with_tensor(1, 3, 7), ["output_norm.weight"]),
    ("shape product overflows", with_tensor(0, 1, (2**32, 2**32)), ["token_embd.weight"]),
    ("nine dimensions", with_tensor(0, 1, (1,) * 9), ["token_embd.weight"]),
    ("tensor twice", with_tensor(1, 0, "token_embd.weight"), ["token_embd.weight"]),
    ("unknown tensor", with_tensor(1, 0, "no_such.weight"), ["no_such.weight"]),
    ("architecture", with_value("general.architecture", STRING, text("nosuch")), ["nosuch"]),
    ("no architecture", without_value("general.architecture"), ["general.architecture"]),
    ("no width", without_value("llama.embedding_length"), ["llama.embedding_length"]),
    (
        "width is text",
        with_value("llama.embedding_length", STRING, text("64")),
        ["llama.embedding_length"],
    ),
    (
        "token scores are strings",
        with_value("tokenizer.ggml.scores", ARRAY, strings(TOKENS)),
        ["tokenizer.ggml.scores"],
    ),
    (
        "eos past the vocabulary",
        with_value("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 9999)),
        ["9999"],
    ),
    (
        "bos past the vocabulary",
        with_value("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", 9999)),
        ["9999"],
    ),
    *[(f"cut at {name}", lambda end=end: gguf()[:end], []) for name, end in sections().items()],
]


def test_the_good_gguf_loads(tmp_path):
    (tmp_path / "good.gguf").write_bytes(gguf())
    code, out, err = tenon("info", "--model", tmp_path / "good.gguf")
    assert code == 0 and "llama" in out, err
    code, _, err = tenon(
        "logits",
        "--model",
        tmp_path / "good.gguf",
        "--ids",
        "1,2",
        "--steps",
        "2",
        "--out",
        tmp_path / "o.safetensors",
    )
    assert code == 0, err


def test_duplicate_tokens_load_and_the_lowest_id_wins(tmp_path):
    """Official files have them."""
    tokens = [*TOKENS, "A", "A"]
    kinds = [3] + [1] * (len(tokens) - 1)
    values = good_values() | {
        "tokenizer.ggml.tokens": (ARRAY, strings(tokens)),
        "tokenizer.ggml.token_type": (
            ARRAY,
            struct.pack(f"<IQ{len(kinds)}i", I32, len(kinds), *kinds),
        ),
    }
    tensors = good_tensors()
    tensors[0][1] = (WIDTH, len(tokens))
    (tmp_path / "twice.gguf").write_bytes(gguf(values=values, tensors=tensors))
    code, out, err = tenon(
        "generate", "--model", tmp_path / "twice.gguf", "--raw", "--json", "--max-tokens", "1", "A"
    )
    assert code == 0, err
    assert json.loads(out)["prompt_tokens"] == 1, out


@pytest.mark.parametrize("name, build, names", GGUFS, ids=[g[0] for g in GGUFS])
def test_damaged_ggufs(tmp_path, name, build, names):
    (tmp_path / "bad.gguf").write_bytes(build())
    refused(tmp_path / "bad.gguf", "bad.gguf", *names, verbs=("info",))


def test_a_misshapen_tensor_of_a_gguf(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(with_tensor(1, 1, (WIDTH // 2,))())
    refused(tmp_path / "bad.gguf", "bad.gguf", "norm", verbs=("generate",))


def test_a_cut_copy_of_the_default_model(tmp_path):
    with open(servers.DEFAULT_MODEL, "rb") as good:
        (tmp_path / "cut.gguf").write_bytes(good.read(8 << 20))
    refused(tmp_path / "cut.gguf", "cut.gguf")


def test_serve_refuses_as_the_others_do(copy):
    on_bytes(lambda b: b[:-1])(copy)
    code, _, err = tenon("serve", "--port", "0", "--model", copy)
    assert code == 1 and FILE in err, (code, err)


def test_what_is_not_there(tmp_path):
    for model in (tmp_path / "nothing", "no-org/no-repo"):
        code, _, err = tenon("info", "--model", model)
        assert code == 1 and str(model) in err and len(err.strip().splitlines()) == 1, (code, err)
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "empty")
    (tmp_path / "note.txt").write_text("hello")
    refused(tmp_path / "note.txt", "note.txt")

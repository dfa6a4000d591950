"""`tenon convert` writes what mlx-lm would: the same bits as mx.quantize, a directory that mlx-lm
loads to the logits that Tenon has, and the default GGUF file without loss.
"""

import json
import signal
import subprocess
import time

import gguf
import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.utils import load_tokenizer

import oracle
import recipes
import tenon
from test_default_model import FRANCE

PROMPT = [(37 * i + 11) % 509 for i in range(24)]
STEPS = 4


def convert(model, out, *flags, code=0):
    done = subprocess.run(
        [str(tenon.BINARY), "convert", "--model", str(model), "--out", str(out), *flags],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    return done.stderr


def tensors_of(folder):
    weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights.update(mx.load(str(file)))
    return weights


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and mx.array_equal(a, b, equal_nan=True).item()


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A tiny llama in each dense storage."""
    folder = tmp_path_factory.mktemp("sources")
    for storage in ("f32", "bf16"):
        recipes.build(recipes.FAMILIES["llama-bias"], storage, folder / storage)
    return folder


@pytest.mark.parametrize("storage", ["f32", "bf16"])
@pytest.mark.parametrize("bits,group", [(2, 32), (3, 64), (4, 64), (5, 32), (6, 128), (8, 64)])
def test_bits_are_those_of_mx_quantize(sources, storage, bits, group, tmp_path):
    out = tmp_path / "out"
    convert(sources / storage, out, "--bits", str(bits), "--group", str(group))
    got, source = tensors_of(out), tensors_of(sources / storage)
    want = {}
    for name, value in source.items():
        if value.ndim < 2:
            want[name] = value
            continue
        path = name.removesuffix(".weight")
        want[name], want[f"{path}.scales"], want[f"{path}.biases"] = mx.quantize(value, group, bits)
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert same(got[name], value), name
    assert config_of(out)["quantization"] == dict(group_size=group, bits=bits, mode="affine")


def check_against_mlx_lm(folder, tmp_path, dtype="float32"):
    model = oracle.load(folder)
    model.set_dtype(recipes.DTYPES[dtype])
    want, want_ids = oracle.greedy(model, PROMPT, STEPS)
    got, ids = tenon.logits(
        folder,
        PROMPT,
        STEPS,
        tmp_path / "out.safetensors",
        "--dtype",
        dtype,
        "--kernels",
        "mlx",
        "--chunk",
        len(PROMPT),
    )
    assert ids.tolist() == want_ids.tolist()
    assert np.array_equal(got, want), np.abs(got - want).max()
    return got


@pytest.mark.parametrize(
    "flags",
    [
        ["--bits", "4"],
        ["--bits", "8"],
        ["--bits", "3", "--group", "32"],
        [
            "--bits",
            "4",
            "--group",
            "32",
            "--override",
            "*.down_proj=8:64",
            "--override",
            "lm_head=none",
        ],
        ["--override", "*.mlp.*=6:32"],
        ["--dtype", "bf16"],
        ["--bits", "8", "--dtype", "float16"],
        ["--mode", "mxfp4"],
        ["--mode", "mxfp8"],
        ["--mode", "nvfp4"],
    ],
    ids=" ".join,
)
def test_mlx_lm_loads_it_to_the_same_logits(sources, flags, tmp_path):
    convert(sources / "f32", tmp_path / "out", *flags)
    check_against_mlx_lm(tmp_path / "out", tmp_path)


def test_overrides_are_written_as_mlx_lm_reads_them(sources, tmp_path):
    convert(
        sources / "f32",
        tmp_path / "out",
        "--bits",
        "4",
        "--group",
        "32",
        "--override",
        "model.layers.1.*=8",
        "--override",
        "*.o_proj=none",
    )
    quantization = config_of(tmp_path / "out")["quantization"]
    assert quantization == config_of(tmp_path / "out")["quantization_config"]
    assert (quantization["bits"], quantization["group_size"]) == (4, 32)
    layer_1 = {k for k in quantization if k.startswith("model.layers.")}
    assert layer_1 == {
        f"model.layers.1.{m}"
        for m in (
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
            "mlp.gate_proj",
            "mlp.up_proj",
            "mlp.down_proj",
        )
    }
    assert quantization["model.layers.1.mlp.up_proj"] == dict(bits=8, group_size=32, mode="affine")
    names = tensors_of(tmp_path / "out")
    assert not any(name.endswith("o_proj.scales") for name in names)


def test_dequantized_is_the_same_model(sources, tmp_path):
    """In float32 the stock quantized product is that of the dequantized matrix, bit for bit."""
    convert(sources / "f32", tmp_path / "q", "--bits", "4", "--group", "32")
    convert(tmp_path / "q", tmp_path / "d", "--dequantize")
    quantized, dense = tensors_of(tmp_path / "q"), tensors_of(tmp_path / "d")
    assert "quantization" not in config_of(tmp_path / "d")
    for name, value in dense.items():
        path = name.removesuffix(".weight")
        if f"{path}.scales" in quantized:
            want = mx.dequantize(
                quantized[name], quantized[f"{path}.scales"], quantized[f"{path}.biases"], 32, 4
            )
            assert same(value, want), name
        else:
            assert same(value, quantized[name]), name
    assert np.array_equal(
        check_against_mlx_lm(tmp_path / "q", tmp_path),
        check_against_mlx_lm(tmp_path / "d", tmp_path),
    )


def test_what_is_stored_as_wanted_keeps_its_bits(sources, tmp_path):
    convert(sources / "f32", tmp_path / "a", "--bits", "4", "--group", "32")
    convert(tmp_path / "a", tmp_path / "b", "--bits", "4", "--group", "32")
    convert(tmp_path / "a", tmp_path / "c")
    for other in ("b", "c"):
        a, b = tensors_of(tmp_path / "a"), tensors_of(tmp_path / other)
        assert a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
        assert config_of(tmp_path / "a") == config_of(tmp_path / other)


@pytest.fixture(scope="module")
def default_directory(tmp_path_factory):
    out = tmp_path_factory.mktemp("default") / "smollm2"
    convert(tenon.DEFAULT_MODEL, out)
    return out


@pytest.mark.timeout(900)
def test_the_default_model_loses_nothing(default_directory, tmp_path):
    runs = {}
    for name, model in (("gguf", tenon.DEFAULT_MODEL), ("directory", default_directory)):
        for kernels in ("mlx", "auto"):
            runs[name, kernels], ids = tenon.logits(
                model,
                FRANCE,
                3,
                tmp_path / "out.safetensors",
                "--kernels",
                kernels,
                "--chunk",
                len(FRANCE),
            )
    assert np.array_equal(runs["gguf", "mlx"], runs["directory", "mlx"])
    # Our kernels read Q8_0 as code - 128, MLX's form as code * scale + bias: equal but for rounding.
    assert np.allclose(runs["gguf", "auto"], runs["directory", "auto"], atol=1e-3, rtol=0)
    model = oracle.load(default_directory)
    model.set_dtype(mx.float32)
    want, want_ids = oracle.greedy(model, FRANCE, 3)
    assert ids.tolist() == want_ids.tolist()
    assert np.array_equal(runs["directory", "mlx"], want)


def test_the_default_model_keeps_its_words(default_directory):
    tokenizer = load_tokenizer(default_directory)
    messages = [dict(role="user", content="What is the capital of France?")]
    assert tokenizer.apply_chat_template(messages, add_generation_prompt=True) == FRANCE
    assert tokenizer.eos_token_id == 2
    for text in ("1, 2, ... 11, 12,", "naïve  façade\n\n\tx = 3.14159", "日本語 🙂 <|im_end|>"):
        command = [str(tenon.BINARY), "generate", "--raw", "--max-tokens", "1", "--json", "--model"]
        counts = {
            json.loads(
                subprocess.run(
                    [*command, str(model), text], capture_output=True, text=True, check=True
                ).stdout
            )["prompt_tokens"]
            for model in (tenon.DEFAULT_MODEL, default_directory)
        }
        assert counts == {len(tokenizer.encode(text))}


def test_blocks_that_are_not_affine_become_floats(tmp_path):
    """Embedding Q6_K, one matrix each of Q4_K and Q5_0 with random bits, the others float."""
    kinds = {"token_embd": "Q6_K", "blk.0.attn_q": "Q4_K", "blk.0.ffn_up": "Q5_0"}
    width, rng, tensors = 256, np.random.default_rng(3), {}
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_context_length(64)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        tensors[f"blk.0.{name}"] = rng.standard_normal((width, width)).astype(np.float32)
    tensors["token_embd"] = np.zeros((32, width), np.float32)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        tensors[name] = np.ones(width, np.float32)
    for name, value in tensors.items():
        kind = gguf.GGMLQuantizationType[kinds.get(name, "F32")]
        if name in kinds:
            elements, size = gguf.GGML_QUANT_SIZES[kind]
            value = rng.integers(0, 60, (len(value), width // elements * size), dtype=np.uint8)
            tensors[name] = gguf.quants.dequantize(value, kind)
        writer.add_tensor(f"{name}.weight", value, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for flags, dtype in (([], np.float16), (["--dtype", "float32"], np.float32)):
        out = tmp_path / np.dtype(dtype).name
        convert(tmp_path / "m.gguf", out, *flags)
        got = tensors_of(out)
        names = {
            "token_embd": "model.embed_tokens",
            "blk.0.attn_q": "model.layers.0.self_attn.q_proj",
            "blk.0.ffn_up": "model.layers.0.mlp.up_proj",
        }
        for name, path in names.items():
            assert np.array_equal(np.array(got[f"{path}.weight"]), tensors[name].astype(dtype)), (
                path
            )
        assert got["model.norm.weight"].dtype == mx.float32
        assert "quantization" not in config_of(out)


def test_files_beside_the_weights_travel(sources, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for file in (sources / "f32").iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    for name in (
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "generation_config.json",
    ):
        (source / name).write_text("{}")
    (source / "README.md").write_text("not for loaders")
    convert(source, tmp_path / "out", "--dtype", "bf16")
    assert {f.name for f in (tmp_path / "out").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "generation_config.json",
    }


@pytest.mark.parametrize(
    "flags,code,words",
    [
        (["--bits", "7"], 2, "2, 3, 4, 5, 6, 8"),
        (["--bits", "4", "--group", "48"], 2, "32, 64, 128"),
        (["--mode", "mxfp4", "--group", "64"], 2, "mxfp4"),
        (["--bits", "4", "--dequantize"], 2, "--dequantize"),
        (["--override", "4:32"], 2, "--override"),
        (["--override", "x=9"], 2, "--override x"),
        (["--bits", "4", "--override", "no.such=8"], 1, "no.such"),
        (["--dtype", "int8"], 2, "--dtype"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_refusals_name_what_is_wrong_and_write_nothing(sources, flags, code, words, tmp_path):
    error = convert(sources / "f32", tmp_path / "out", *flags, code=code)
    assert words in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_stays(sources, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("mine")
    assert "exists" in convert(sources / "f32", tmp_path / "out", code=1)
    assert [f.name for f in (tmp_path / "out").iterdir()] == ["mine"]


def test_a_stopped_run_leaves_nothing(tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen(
        [
            str(tenon.BINARY),
            "convert",
            "--model",
            str(tenon.DEFAULT_MODEL),
            "--out",
            str(out),
            "--bits",
            "6",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1 and "stopped" in error
    assert not list(tmp_path.iterdir())

"""Cases of the families specification 11 and the caches specification 9 that the family table (recipes.py) leaves open,
against mlx-lm: files as their publishers write them, configs that leave out what has a default, and
the places where an oracle changes its arithmetic. Each test names its case.
"""
import json
import shutil
import struct

import mlx.core as mx
import numpy as np
import pytest
from safetensors import safe_open

import oracle
import recipes
import tenon

PROMPT = [(37 * i + 11) % 509 for i in range(40)]
STEPS = 8


def describe(got, want):
    rows = np.where((got != want).any(axis=1))[0]
    return f"first differing row {rows[0]}, largest difference {np.abs(got - want).max()}"


def run(folder, tmp_path, *flags, dtype="float32", chunk=len(PROMPT), prompt=PROMPT, steps=STEPS):
    return tenon.logits(folder, prompt, steps, tmp_path / "out.safetensors", "--dtype", dtype,
                        "--kernels", "mlx", "--chunk", chunk, *flags)


def check_bits(folder, tmp_path, dtype="float32", chunk=len(PROMPT), prompt=PROMPT, steps=STEPS):
    """Our logits, once they have been those of mlx-lm."""
    want, want_ids = oracle.greedy(oracle.load(folder), prompt, steps, chunk)
    got, ids = run(folder, tmp_path, dtype=dtype, chunk=chunk, prompt=prompt, steps=steps)
    assert ids.tolist() == want_ids.tolist()
    assert np.array_equal(got, want), describe(got, want)
    assert np.abs(want).max() > 0.1, "a model that says nothing would agree with anything"
    return got


def refusal(folder, tmp_path):
    with pytest.raises(AssertionError) as failed:
        run(folder, tmp_path)
    return str(failed.value)


def tensors_of(folder):
    tensors = mx.load(str(folder / "model.safetensors"))
    mx.eval(tensors)
    return tensors


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def write(folder, config, tensors):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def normal(*shape, seed=1, dtype=mx.float32):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return mx.array(values).astype(dtype)


# families 1, 7: MiniCPM5's graph takes no other dimensions than these. Only the first rows of the
# vocabulary are ids of the test; the others are holes in the file.
MINICPM5 = dict(model_type="llama", hidden_size=1536, num_hidden_layers=24, intermediate_size=256,
                num_attention_heads=16, num_key_value_heads=2, head_dim=128, vocab_size=130560,
                rms_norm_eps=1e-6, rope_theta=10000.0, max_position_embeddings=4096,
                tie_word_embeddings=False, quantization=recipes.affine(4, 64))
FILLED = 512


def write_sparse(path, tensors):
    """tensors: name -> (rows in all, array of the first rows)."""
    names = {np.dtype(np.float32): "F32", np.dtype(np.uint32): "U32"}
    header, at = {}, 0
    for name, (rows, array) in tensors.items():
        shape = [rows, *array.shape[1:]]
        size = int(np.prod(shape)) * array.itemsize
        header[name] = dict(dtype=names[array.dtype], shape=shape, data_offsets=[at, at + size])
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        start = file.tell()
        for name, (_, array) in tensors.items():
            file.seek(start + header[name]["data_offsets"][0])
            file.write(array.tobytes())
        file.truncate(start + at)


def minicpm5_tensors(config):
    rng = np.random.default_rng(3)
    width, inner = config["hidden_size"], config["intermediate_size"]
    q = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    tensors = {}

    def matrix(path, out, size, rows=None):
        scale = 1.0 if "embed" in path else size**-0.5
        weight = mx.array(scale * rng.standard_normal((out, size), np.float32))
        for part, array in zip(("weight", "scales", "biases"), mx.quantize(weight, 64, 4)):
            tensors[f"{path}.{part}"] = rows or out, np.array(array)

    def norm(path):
        tensors[f"{path}.weight"] = width, rng.uniform(0.7, 1.3, width).astype(np.float32)

    matrix("model.embed_tokens", FILLED, width, config["vocab_size"])
    matrix("lm_head", FILLED, width, config["vocab_size"])
    norm("model.norm")
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        norm(at + "input_layernorm")
        norm(at + "post_attention_layernorm")
        for name, out, size in (("self_attn.q_proj", q, width), ("self_attn.k_proj", kv, width),
                                ("self_attn.v_proj", kv, width), ("self_attn.o_proj", width, q),
                                ("mlp.gate_proj", inner, width), ("mlp.up_proj", inner, width),
                                ("mlp.down_proj", width, inner)):
            matrix(at + name, out, size)
    return tensors


def test_minicpm5_at_its_own_dimensions(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    write_sparse(folder / "model.safetensors", minicpm5_tensors(MINICPM5))
    (folder / "config.json").write_text(json.dumps(MINICPM5))
    check_bits(folder, tmp_path, prompt=PROMPT[:12], steps=4, chunk=7)
    with safe_open(tmp_path / "out.safetensors", "np") as file:
        assert file.metadata()["profile"] == "minicpm5-dedicated"
    shutil.rmtree(folder)  # hundreds of megabytes


# families 2

def published_gemma4(config, tensors):
    """As the multimodal checkpoints are written: text under another prefix, experts without
    ".weight" and gate beside up, and tensors that text does not use, those of layers that share
    keys included.
    """
    published = {}
    for name, value in tensors.items():
        name = name.replace("model.", "model.language_model.", 1)
        if ".switch_glu." not in name:
            published[name] = value
        elif "down_proj" in name:
            published[name.replace(".switch_glu.down_proj.weight", ".down_proj")] = value
        elif "gate_proj" in name:
            stored = name.replace("model.language_model.", "model.")
            both = mx.concatenate([value, tensors[stored.replace("gate_proj", "up_proj")]], axis=-2)
            published[name.replace(".switch_glu.gate_proj.weight", ".gate_up_proj")] = both
    width = config["hidden_size"]
    for part in ("vision_tower.encoder.weight", "multi_modal_projector.weight",
                 "audio_tower.conv.weight", "embed_audio.weight", "embed_vision.weight",
                 "vision_embedder.weight"):
        published[f"model.{part}"] = normal(3, 5)
    at = "model.language_model.layers."
    for part in ("input_max", "input_min", "output_max", "output_min"):
        published[f"{at}0.mlp.up_proj.{part}"] = normal(1)
    published[f"{at}0.self_attn.rotary_emb.inv_freq"] = normal(16)
    shared = config["num_kv_shared_layers"]
    for i in range(config["num_hidden_layers"] - shared, config["num_hidden_layers"]):
        published[f"{at}{i}.self_attn.k_proj.weight"] = normal(64, width, seed=i)
        published[f"{at}{i}.self_attn.v_proj.weight"] = normal(64, width, seed=i + 50)
        published[f"{at}{i}.self_attn.k_norm.weight"] = normal(64, seed=i + 90)
    text = dict(config, model_type="gemma4_text")
    return dict(model_type="gemma4", vocab_size=recipes.VOCAB, text_config=text), published


@pytest.mark.parametrize("recipe", ["gemma4", "gemma4-narrow-shared", "gemma4-moe-keys-as-values"])
def test_gemma4_as_published(recipe, tmp_path):
    plain = tmp_path / "plain"
    recipes.build(recipes.FAMILIES[recipe], "f32", plain)
    config, tensors = published_gemma4(config_of(plain), tensors_of(plain))
    assert any(name.endswith("experts.gate_up_proj") for name in tensors) == ("moe" in recipe)
    folder = write(tmp_path / "model", config, tensors)
    got = check_bits(folder, tmp_path)
    assert np.array_equal(got, run(plain, tmp_path)[0])


# families 4: names and fields of RoPE beside those of the family table.
ROPES = {
    "default": dict(recipes.LLAMA, rope_scaling=dict(rope_type="default")),
    "mrope": dict(recipes.LLAMA, rope_scaling=dict(type="mrope", mrope_section=[4, 6, 6])),
    "deepseek_yarn": dict(recipes.LLAMA, rope_scaling=dict(recipes.YARN_ROPE,
                                                           type="deepseek_yarn")),
    "telechat3-yarn": dict(recipes.LLAMA, rope_scaling=dict(recipes.YARN_ROPE,
                                                            type="telechat3-yarn")),
    "yarn-by-newer-key": dict(recipes.QWEN3, rope_theta=None, rope_parameters=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=32, rope_theta=50000.0)),
    "yarn-defaults": dict(recipes.LLAMA, rope_scaling=dict(type="yarn", factor=4.0)),
    "llama3-defaults": dict(recipes.LLAMA, rope_theta=5e5,
                            rope_scaling=dict(type="llama3", factor=8.0)),
    "proportional-factor": dict(recipes.LLAMA, rope_scaling=dict(
        type="proportional", partial_rotary_factor=0.4, factor=2.0)),
    "linear-traditional": dict(recipes.LLAMA, rope_traditional=True,
                               rope_scaling=dict(type="linear", factor=3.0)),
    "phi3-su": dict(recipes.PHI3, rope_scaling=dict(recipes.LONG_ROPE, type="su")),
    "phi3-linear": dict(recipes.PHI3, rope_scaling=dict(type="linear", factor=2.0,
                                                        long_factor=[1.0])),
    "phi3-other-is-off": dict(recipes.PHI3, rope_scaling=dict(type="yarn", factor=2.0,
                                                              long_factor=[1.0])),
}


@pytest.mark.parametrize("rope", ROPES)
def test_rope_by_other_names(rope, tmp_path):
    folder = tmp_path / "model"
    recipes.build(ROPES[rope], "f32", folder)
    check_bits(folder, tmp_path)


# families 5

def published_qwen35(config, tensors, norms=True):
    """Convolutions as [channels, 1, taps], norms (but the mixers' own) as distances from one."""
    published = {}
    for name, value in tensors.items():
        name = name.removeprefix("language_model.")
        if name.startswith("model."):
            name = name.replace("model.", "model.language_model.", 1)
        if "conv1d" in name:
            value = value.moveaxis(1, 2)
        elif norms and name.endswith("norm.weight") and "linear_attn" not in name:
            value = value - 1.0
        published[name] = value
    published["model.visual.patch_embed.weight"] = normal(3, 5)
    text = dict(config, model_type="qwen3_5_text")
    return dict(model_type="qwen3_5", text_config=text), published


def with_drafter(tensors):
    return tensors | {"mtp.fc.weight": normal(4, 8), "mtp.norm.weight": normal(8)}


@pytest.mark.parametrize("storage", ["f32", "bf16"])
@pytest.mark.parametrize("drafter", [False, True])
@pytest.mark.parametrize("recipe", ["qwen3.5", "qwen3.5-tied-interval3"])
def test_qwen35_as_published(recipe, drafter, storage, tmp_path):
    plain = tmp_path / "plain"
    dtype = recipes.build(recipes.FAMILIES[recipe], storage, plain)
    config, tensors = published_qwen35(config_of(plain), tensors_of(plain))
    folder = write(tmp_path / "model", config, with_drafter(tensors) if drafter else tensors)
    got = check_bits(folder, tmp_path, dtype)
    # The same norms, taken as they are, say something else.
    config, tensors = published_qwen35(config_of(plain), tensors_of(plain), norms=False)
    other = run(write(tmp_path / "other", config, tensors), tmp_path, dtype=dtype)[0]
    assert not np.array_equal(got[:len(PROMPT)], other[:len(PROMPT)])


def test_qwen35_a_drafters_tensors_shift_no_converted_norm(tmp_path):
    plain = tmp_path / "plain"
    recipes.build(recipes.FAMILIES["qwen3.5"], "f32", plain)
    folder = write(tmp_path / "model", config_of(plain), with_drafter(tensors_of(plain)))
    assert np.array_equal(check_bits(folder, tmp_path), run(plain, tmp_path)[0])


def test_qwen35_norms_left_as_distances_are_refused(tmp_path):
    plain = tmp_path / "plain"
    recipes.build(recipes.FAMILIES["qwen3.5"], "f32", plain)
    tensors = tensors_of(plain)
    for name in tensors:
        if name.endswith("norm.weight") and "linear_attn" not in name:
            tensors[name] = tensors[name] - 1.0
    said = refusal(write(tmp_path / "model", config_of(plain), tensors), tmp_path)
    assert "model.norm.weight" in said and "convert" in said, said


# families 5, caches 15: everything but A_log is cast; recipes cast that too.

def test_qwen35_decays_stay_float32(tmp_path):
    plain = tmp_path / "plain"
    dtype = recipes.build(recipes.FAMILIES["qwen3.5"], "bf16", plain)
    tensors = tensors_of(plain)
    decays = [name for name in tensors if name.endswith("A_log")]
    assert decays
    for i, name in enumerate(decays):
        tensors[name] = normal(*tensors[name].shape, seed=i)
    got = check_bits(write(tmp_path / "exact", config_of(plain), tensors), tmp_path, dtype)
    for name in decays:
        tensors[name] = tensors[name].astype(mx.bfloat16)
    rounded = check_bits(write(tmp_path / "rounded", config_of(plain), tensors), tmp_path, dtype)
    assert not np.array_equal(got[:len(PROMPT)], rounded[:len(PROMPT)])


# caches 12, 16: the small shape of the written case, and three value heads to a key head.

@pytest.mark.parametrize("storage", ["f32", "bf16"])
@pytest.mark.parametrize("value_heads", [2, 4, 6])
def test_qwen35_narrow_value_heads(value_heads, storage, tmp_path):
    folder = tmp_path / "model"
    config = dict(recipes.QWEN35, linear_num_value_heads=value_heads, linear_value_head_dim=8)
    dtype = recipes.build(config, storage, folder)
    check_bits(folder, tmp_path, dtype)
    check_bits(folder, tmp_path, dtype, chunk=7)


# families 6: from 64 pairs of token and expert on the oracle sorts them; 7 tokens have 56, 8 64.

@pytest.mark.parametrize("storage", ["f32", "q4-f32"])
@pytest.mark.parametrize("renormalize", [True, False])
def test_qwen3_moe_around_the_sorting_threshold(renormalize, storage, tmp_path):
    folder = tmp_path / "model"
    recipes.build(dict(recipes.QWEN3_MOE, num_experts=16, num_experts_per_tok=8,
                       norm_topk_prob=renormalize), storage, folder)
    seven, eight = (check_bits(folder, tmp_path, chunk=chunk, steps=1) for chunk in (7, 8))
    assert np.abs(seven - eight).max() < 1e-4 * np.abs(eight).max()


# families 13: a module is quantized when its scales are there, whatever the config leaves unsaid.

def test_scales_say_what_is_quantized(tmp_path):
    folder = tmp_path / "model"
    dense = ("lm_head", "model.embed_tokens", "model.layers.1.mlp.up_proj")
    dense = {name: False for name in dense}
    recipes.build(recipes.LLAMA, ("float32", recipes.affine(4) | dense), folder)
    config = config_of(folder)
    config["quantization"] = recipes.affine(4)
    got = check_bits(write(tmp_path / "unsaid", config, tensors_of(folder)), tmp_path)
    assert np.array_equal(got, run(folder, tmp_path)[0])
    tensors = tensors_of(folder)
    del tensors["model.layers.0.self_attn.q_proj.scales"]
    said = refusal(write(tmp_path / "without", config, tensors), tmp_path)
    assert "model.layers.0.self_attn.q_proj.scales" in said, said


# families 12: every type with nothing but what mlx-lm's dataclass or its descriptor requires.
LEAST = dict(hidden_size=64, num_hidden_layers=4, intermediate_size=96, num_attention_heads=4,
             rms_norm_eps=1e-5, vocab_size=recipes.VOCAB)
KV = dict(num_key_value_heads=2)
DEFAULTS = {
    "llama": LEAST,
    "smollm3": LEAST,
    "qwen2": LEAST | KV,
    "qwen3": LEAST | KV | dict(max_position_embeddings=512, head_dim=32, tie_word_embeddings=True,
                               rope_theta=1e6),
    "gemma": LEAST | KV | dict(head_dim=32),
    "gemma2": LEAST | KV | dict(head_dim=32),
    "gemma3_text": dict(hidden_size=64, num_hidden_layers=7, intermediate_size=96,
                        vocab_size=recipes.VOCAB),
    "phi3": LEAST,
    "olmo2": LEAST,
    "glm4": LEAST | KV | dict(attention_bias=False, head_dim=32, partial_rotary_factor=0.5,
                              rope_theta=10000.0),
    "granite": LEAST | KV | dict(logits_scaling=2.0, attention_multiplier=0.2,
                                 embedding_multiplier=3.0, residual_multiplier=0.5,
                                 max_position_embeddings=512, attention_bias=False,
                                 mlp_bias=False, rope_theta=10000.0),
    "starcoder2": dict(hidden_size=64, num_hidden_layers=2, intermediate_size=96,
                       num_attention_heads=4, num_key_value_heads=2),
    "minicpm": LEAST | KV | dict(dim_model_base=32, scale_depth=1.4, scale_emb=2.0),
    # Twenty of its layers share keys unless the config says otherwise.
    "gemma4_text": dict(hidden_size=64, num_hidden_layers=25, intermediate_size=96,
                        vocab_size=recipes.VOCAB, vocab_size_per_layer_input=recipes.VOCAB),
    # The profile wants the two that say that it is one of these.
    "qwen3_5": dict(hidden_size=1024, num_hidden_layers=4, intermediate_size=96,
                    vocab_size=recipes.VOCAB, linear_num_value_heads=16,
                    full_attention_interval=4),
}


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_what_a_config_leaves_out(model_type, tmp_path):
    folder = tmp_path / "model"
    recipes.build(DEFAULTS[model_type] | dict(model_type=model_type), "f32", folder)
    stated = set(DEFAULTS[model_type]) | {"model_type"}
    assert set(config_of(folder)) == stated, "the recipe has filled something in"
    check_bits(folder, tmp_path, steps=3)


# families 12: what a file may hold beyond the model, and what it may not.

def test_precomputed_angles_and_the_tied_head_are_left_out(tmp_path):
    plain = tmp_path / "plain"
    recipes.build(recipes.FAMILIES["llama-tied-mha"], "f32", plain)
    extra = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": normal(16) for i in range(3)}
    extra["lm_head.weight"] = normal(recipes.VOCAB, 128)
    folder = write(tmp_path / "model", config_of(plain), tensors_of(plain) | extra)
    assert np.array_equal(check_bits(folder, tmp_path), run(plain, tmp_path)[0])


@pytest.mark.parametrize("recipe", ["llama-untied-gqa", "gemma2", "phi3", "qwen3-moe", "qwen3.5",
                                    "gemma4"])
def test_other_tensors_are_refused_by_name(recipe, tmp_path):
    plain = tmp_path / "plain"
    recipes.build(recipes.FAMILIES[recipe], "f32", plain)
    tensors = tensors_of(plain)
    more = tensors | {"model.layers.0.self_attn.sinks": normal(4), "model.extra.weight": normal(4)}
    said = refusal(write(tmp_path / "more", config_of(plain), more), tmp_path)
    assert "model.layers.0.self_attn.sinks" in said and "model.extra.weight" in said, said
    norm = "layers.0.post_attention_layernorm.weight"
    fewer = {name: value for name, value in tensors.items() if not name.endswith(norm)}
    assert len(fewer) == len(tensors) - 1
    said = refusal(write(tmp_path / "fewer", config_of(plain), fewer), tmp_path)
    assert norm in said, said


# caches 5, 6: pieces that end just below, at and above the window, where a causal mask gives way to
# an array and a ring to its order in time.
PIECES = (1, 2, recipes.WINDOW - 1, recipes.WINDOW, recipes.WINDOW + 1, 2 * recipes.WINDOW + 1)


@pytest.mark.parametrize("chunk", PIECES)
@pytest.mark.parametrize("recipe", ["llama-sliding", "gemma3", "gemma4"])
def test_pieces_around_the_window(recipe, chunk, tmp_path):
    folder = tmp_path / "model"
    recipes.build(recipes.FAMILIES[recipe], "f32", folder)
    check_bits(folder, tmp_path, chunk=chunk, steps=2 * recipes.WINDOW + 3)

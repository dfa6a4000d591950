"""Every tensor and config field of every family: absent or misshapen is refused by name."""

import re

import pytest
from damaged import (
    Safetensors,
)
from damaged_common import (
    INFO,
    KERNELS,
    LOGITS,
    NAN,
    SIZES,
    WRONG,
    cut_rows,
    put_config,
    rows,
    shown,
)

FAMILIES = ["qwen3-moe", "qwen3.5", "gemma4", "gemma4-moe-keys-as-values", "phi3", "starcoder2"]


def kinds_of_tensors(t):
    """The first tensor of each kind: same name but for the layer, same shape."""
    first = {}
    for name, entry in t.header.items():
        if name != "__metadata__":
            kind = (re.sub(r"layers\.\d+", "layers.N", name), *entry["shape"])
            first.setdefault(kind, name)
    return sorted(first.values())


def complaints(model, damage, check):
    """What `check` says when each kind of tensor is damaged in turn."""
    file = model / "model.safetensors"
    t = Safetensors.read(file)
    said = []
    for name in kinds_of_tensors(t):
        file.write_bytes(damage(t, name).bytes())
        try:
            check(name)
        except AssertionError as error:
            said.append(f"{name}: {error}")
    return "\n".join(said)


def one_row_less(t, name):
    shape = t.header[name]["shape"]
    return cut_rows(t, name, shape[0] - 1) if shape else t.entry(name, shape=[1])


def as_nan(t, name):
    begin, end = t.header[name]["data_offsets"]
    return t.poked(name, NAN * ((end - begin) // 4))


FAMILY_DAMAGE = {"absent": lambda t, name: t.without(name), "misshapen": one_row_less}


@pytest.mark.parametrize("damage", FAMILY_DAMAGE)
@pytest.mark.parametrize("name", FAMILIES)
def test_each_tensor_of_a_family(tenon, family, name, damage):
    model = family(name)

    def check(tensor):
        tenon.refused(INFO, model, re.escape(tensor.removeprefix("language_model.")))

    said = complaints(model, FAMILY_DAMAGE[damage], check)
    assert not said, said


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("name", FAMILIES)
def test_nan_in_each_tensor_of_a_family(tenon, family, name, kernels):
    model, command = family(name), [*LOGITS, "--kernels", kernels]
    said = complaints(model, as_nan, lambda tensor: tenon.refused(command, model, "NaN"))
    assert not said, said


def expert_bytes(t):
    """Bytes of one stack, eight matrices of 64 by 128 in float32, moved past the end."""
    return [len(t.data) - 8, len(t.data) - 8 + 4 * 8 * 64 * 128]


ONE_EXPERT = "model.layers.1.mlp.experts.0.gate_proj.weight"
EXPERTS = {
    "one-expert-less": ("gate", lambda t, name: cut_rows(t, name, 7)),
    "one-expert": ("up", lambda t, name: cut_rows(t, name, 1)),
    "no-experts": ("down", lambda t, name: cut_rows(t, name, 0)),
    "experts-in-a-row": ("gate", lambda t, name: t.entry(name, shape=[8 * 64, 128])),
    "experts-last": ("gate", lambda t, name: t.entry(name, shape=[64, 128, 8])),
    "matrices-transposed": ("gate", lambda t, name: t.entry(name, shape=[8, 128, 64])),
    "matrices-transposed-down": ("down", lambda t, name: t.entry(name, shape=[8, 64, 128])),
    "four-dimensions": ("up", lambda t, name: t.entry(name, shape=[1, 8, 64, 128])),
    "half-as-wide": ("up", lambda t, name: t.entry(name, shape=[16, 64, 64])),
    "of-integers": ("up", lambda t, name: t.entry(name, dtype="I32")),
    "of-packed-words": ("down", lambda t, name: t.entry(name, dtype="U32")),
    "past-the-end": ("down", lambda t, name: t.entry(name, data_offsets=expert_bytes(t))),
    "sizes-2^40": ("gate", lambda t, name: t.entry(name, shape=[1 << 40, 64, 128])),
    "sizes-overflow": ("gate", lambda t, name: t.entry(name, shape=[1 << 40, 1 << 20, 128])),
    "a-part-beside-the-stack": (
        "gate",
        lambda t, name: t.appended(ONE_EXPERT, "F32", [64, 128], bytes(4 * 64 * 128)),
    ),
    "a-part-without-the-others": (
        "gate",
        lambda t, name: t.without(name).appended(ONE_EXPERT, "F32", [64, 128], bytes(4 * 64 * 128)),
    ),
}


@pytest.mark.parametrize("case", EXPERTS)
def test_stacked_experts(tenon, family, case):
    which, change = EXPERTS[case]
    model = family("qwen3-moe")
    file = model / "model.safetensors"
    name = f"model.layers.1.mlp.switch_mlp.{which}_proj.weight"
    file.write_bytes(change(Safetensors.read(file), name).bytes())
    tensor = rf"model\.layers\.1\.mlp\.\S+{which}_proj\.(weight|scales)"
    # An expert that is in no file is missed in the folder.
    where = re.escape(str(model)) if case.endswith("others") else r"model\.safetensors"
    for command in (INFO, LOGITS):
        tenon.refused(command, model, tensor)
    tenon.refused(INFO, model, where)


MIXTURE_FIELDS = {
    "num_experts": [-1, 7, 9, 1 << 16, 1 << 40, "8", 1.5],
    "num_experts_per_tok": [0, -1, 9, 1 << 40, "3"],
    "moe_intermediate_size": [0, -64, 32, 128, 1 << 24, 1 << 40, [64]],
    "decoder_sparse_step": [0, -1, 1 << 40, "1"],
    "mlp_only_layers": ["0", [0.5], {"a": 1}, [["0"]]],
    "norm_topk_prob": ["yes", 1],
}


@pytest.mark.parametrize("field, value", rows(MIXTURE_FIELDS), ids=shown)
def test_config_of_a_mixture(tenon, family, field, value):
    model = family("qwen3-moe")
    put_config(model, **{field: value})
    tenon.refused(INFO, model, rf"config\.json.*{field}|tensor model\.layers")


FAMILY_SIZES = {
    "qwen3-moe": [],
    "qwen3.5": [
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
        "full_attention_interval",
    ],
    "gemma4": [
        "global_head_dim",
        "sliding_window",
        "num_kv_shared_layers",
        "sliding_window_pattern",
        "hidden_size_per_layer_input",
        "vocab_size_per_layer_input",
    ],
}


@pytest.mark.parametrize("value", ["string", "negative", "fraction", "2^40", "2^64"])
@pytest.mark.parametrize("name", FAMILY_SIZES)
def test_config_of_a_family(tenon, family, name, value):
    model = family(name)
    whole = (model / "config.json").read_text()
    said = []
    for field in [*SIZES, *FAMILY_SIZES[name]]:
        put_config(model, **{field: WRONG[value]})
        try:
            tenon.refused(INFO, model, field, r"config\.json")
        except AssertionError as error:
            said.append(f"{field}: {error}")
        (model / "config.json").write_text(whole)
    assert not said, "\n".join(said)

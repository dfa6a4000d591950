"""Tensors that are whole and not those of the model are refused with their file and name."""

import re

import numpy as np
import pytest
from damaged import (
    FFN,
    HIDDEN,
    Safetensors,
)
from damaged_common import (
    EACH_VERB,
    EMBED,
    HEAD,
    INFO,
    NAN,
    NORM,
    UP,
    ZEROS,
    cut_rows,
    put_quantized,
)

NOT_THE_MODELS = {
    # a file that is whole; what it holds does not fit. `absent` ones are in no file.
    "matrix-absent": (lambda t: t.without(UP), None, [UP]),
    "norm-absent": (lambda t: t.without(NORM), None, [NORM]),
    "embedding-absent": (lambda t: t.without(EMBED), None, [EMBED]),
    "head-absent": (lambda t: t.without(HEAD), None, [HEAD]),
    "layer-absent": (
        lambda t: t.without(*(n for n in t.header if ".layers.1." in n)),
        None,
        [r"layers\.1\."],
    ),
    "all-absent": (lambda t: Safetensors({}, b""), None, ["no tensors"]),
    "all-but-one-absent": (lambda t: t.without(*(n for n in t.header if n != UP)), None, ["model"]),
    "transposed": (lambda t: t.entry(UP, shape=[HIDDEN, FFN]), True, [UP]),
    "one-row-less": (lambda t: cut_rows(t, UP, FFN - 1), True, [UP]),
    "no-rows": (lambda t: cut_rows(t, UP, 0), True, [UP]),
    "flat": (lambda t: t.entry(UP, shape=[FFN * HIDDEN]), True, [UP]),
    "three-dimensions": (lambda t: t.entry(UP, shape=[1, FFN, HIDDEN]), True, [UP]),
    "scalar": (lambda t: t.appended(UP, "F32", [], NAN), True, [UP]),
    "norm-of-two-dimensions": (lambda t: t.entry(NORM, shape=[1, HIDDEN]), True, [NORM]),
    "norm-too-short": (lambda t: cut_rows(t, NORM, HIDDEN - 1), True, [NORM]),
    "embedding-too-short": (lambda t: cut_rows(t, EMBED, 100), True, [EMBED]),
    "head-too-short": (lambda t: cut_rows(t, HEAD, 100), True, [HEAD]),
    "matrix-of-integers": (lambda t: t.entry(UP, dtype="I32"), True, [UP]),
    "matrix-packed-but-no-scales": (lambda t: t.entry(UP, dtype="U32"), True, [UP, "scales"]),
    "norm-of-integers": (lambda t: t.entry(NORM, dtype="I32"), True, [NORM]),
    "norm-of-unsigned": (lambda t: t.entry(NORM, dtype="U32"), True, [NORM]),
    "extra": (
        lambda t: t.appended("model.layers.1.mlp.more.weight", "F32", [HIDDEN], ZEROS),
        True,
        ["mlp.more.weight"],
    ),
    "extra-bias": (
        lambda t: t.appended("model.layers.0.self_attn.q_proj.bias", "F32", [HIDDEN], ZEROS),
        True,
        ["q_proj.bias"],
    ),
    "extra-layer": (
        lambda t: t.appended("model.layers.2.input_layernorm.weight", "F32", [HIDDEN], ZEROS),
        True,
        ["model.layers.2.input_layernorm.weight"],
    ),
    "extra-scales": (
        lambda t: t.appended(UP[:-6] + "scales", "F32", [HIDDEN], ZEROS),
        True,
        [UP[:-6]],
    ),
}


@pytest.mark.parametrize("case", NOT_THE_MODELS)
def test_tensors_that_are_not_the_models(tenon, folder, tensors, case):
    change, in_file, words = NOT_THE_MODELS[case]
    (folder / "model.safetensors").write_bytes(change(tensors).bytes())
    file = r"model\.safetensors" if in_file else re.escape(str(folder))
    tenon.refused(INFO, folder, *words)
    tenon.refused(INFO, folder, file)


# Quantized the MLX way: [rows, columns] as packed words, scales and biases.
QUANTIZED = {"group_size": 32, "bits": 4}


def zeros(dtype, *shape):
    size = {"F32": 4, "F16": 2, "U32": 4, "U8": 1}[dtype]
    return dtype, shape, bytes(size * int(np.prod(shape)))


BAD_QUANTIZED = {
    "scales-absent": ({"scales": None}, QUANTIZED, [UP[:-6] + "scales"]),
    "biases-absent": ({"biases": None}, QUANTIZED, [UP[:-6] + "biases"]),
    "weight-absent": ({"weight": None}, QUANTIZED, [UP]),
    "weight-too-narrow": ({"weight": zeros("U32", FFN, 7)}, QUANTIZED, [UP]),
    "weight-of-floats": ({"weight": zeros("F32", FFN, 8)}, QUANTIZED, [UP]),
    "weight-of-bytes": ({"weight": zeros("U8", FFN, 32)}, QUANTIZED, [UP]),
    "scales-too-few": ({"scales": zeros("F32", FFN, 1)}, QUANTIZED, [UP[:-6] + "scales"]),
    "scales-of-integers": ({"scales": zeros("U32", FFN, 2)}, QUANTIZED, [UP[:-6] + "scales"]),
    "biases-too-few": ({"biases": zeros("F32", 1, 2)}, QUANTIZED, [UP[:-6] + "biases"]),
    "biases-of-another-type": ({"biases": zeros("F16", FFN, 2)}, QUANTIZED, [UP[:-6] + "biases"]),
    "no-object": ({}, None, [UP[:-6]]),
    "a-list": ({}, [4, 32], ["config.json", "quantization"]),
    "bits-absent": ({}, {"group_size": 32}, ["quantization.bits"]),
    "bits-zero": ({}, {"group_size": 32, "bits": 0}, ["quantization.bits"]),
    "bits-negative": ({}, {"group_size": 32, "bits": -4}, ["quantization.bits"]),
    "bits-7": ({}, {"group_size": 32, "bits": 7}, ["quantization.bits"]),
    "bits-huge": ({}, {"group_size": 32, "bits": 1 << 62}, ["quantization.bits"]),
    "bits-2^64": ({}, {"group_size": 32, "bits": 1 << 64}, ["quantization.bits"]),
    "bits-a-string": ({}, {"group_size": 32, "bits": "4"}, ["quantization.bits"]),
    "bits-8": ({}, {"group_size": 32, "bits": 8}, [UP]),
    "group-absent": ({}, {"bits": 4}, ["quantization.group_size"]),
    "group-zero": ({}, {"group_size": 0, "bits": 4}, ["quantization.group_size"]),
    "group-negative": ({}, {"group_size": -32, "bits": 4}, ["quantization.group_size"]),
    "group-64": ({}, {"group_size": 64, "bits": 4}, [UP[:-6] + "scales"]),
    "group-wider-than-a-row": ({}, {"group_size": 128, "bits": 4}, [UP[:-7]]),
    "mode-unknown": ({}, QUANTIZED | {"mode": "q4"}, ["quantization.mode"]),
    "mode-a-number": ({}, QUANTIZED | {"mode": 4}, ["quantization.mode"]),
    "mode-of-bytes": ({}, {"mode": "mxfp4"}, [UP[:-6] + "scales"]),
    "said-not-to-be": ({}, QUANTIZED | {UP[:-7]: False}, [UP[:-6] + "scales"]),
    "own-is-a-string": ({}, QUANTIZED | {UP[:-7]: "4"}, [UP[:-7]]),
    "own-bits-wrong": ({}, QUANTIZED | {UP[:-7]: {"bits": 9}}, [UP[:-7]]),
    "another-maker": ({}, {"quant_method": "gptq", "bits": 4}, ["quant_method"]),
}


def test_the_quantized_model_runs(tenon, folder, tensors):
    put_quantized(folder, tensors, {}, QUANTIZED)
    for command in EACH_VERB:
        assert tenon.bounded(command, folder).code == 0


@pytest.mark.parametrize("case", BAD_QUANTIZED)
def test_quantized_tensors(tenon, folder, tensors, case):
    changes, quantization, words = BAD_QUANTIZED[case]
    put_quantized(folder, tensors, changes, quantization)
    tenon.refused(
        INFO, folder, r"model\.safetensors|config\.json|" + re.escape(str(folder)), *words
    )

"""A config.json that is cut, or whose fields cannot be, is refused with the field."""

import json

import pytest
from damaged import (
    FFN,
    HEADS,
    LAYERS,
)
from damaged_common import (
    INFO,
    LOGITS,
    POINTER,
    SIZES,
    WRONG,
    in_words,
    nested,
    put_config,
    rows,
    shown,
)



def test_config_absent(tenon, folder):
    (folder / "config.json").unlink()
    tenon.refused(INFO, folder, r"config\.json")


CONFIG_TEXTS = {
    "cut": lambda text: text[: len(text) // 2],
    "cut-at-its-end": lambda text: text.rstrip()[:-1],
    "text-after-it": lambda text: text + "}",
    "a-list": lambda text: f"[{text}]",
    "a-string": lambda text: json.dumps(text),
    "a-number": lambda text: "1",
    "null": lambda text: "null",
    "empty-object": lambda text: "{}",
    "not-json": lambda text: "model_type: llama\n",
    "single-quotes": lambda text: text.replace('"', "'"),
    "comment": lambda text: "// a model\n" + text,
    "nan": lambda text: text.replace("1e-05", "NaN"),
    "infinity": lambda text: text.replace("1e-05", "Infinity"),
    "utf-16": lambda text: text.encode("utf-16"),
    "invalid-utf-8": lambda text: text.encode().replace(b"llama", b"ll\xffma"),
    "null-bytes": lambda text: "\0" * len(text),
    "nested-deep": lambda text: nested(1_000_000),
    "nested-deep-inside": lambda text: text.rstrip()[:-1] + ',"a":' + '{"a":' * 100_000,
    "very-many-keys": lambda text: (
        text.rstrip()[:-1] + "".join(f',"k{i}":0' for i in range(200_000)) + "}"
    ),
    "pointer": lambda text: POINTER,
}


@pytest.mark.parametrize("case", CONFIG_TEXTS)
def test_config_text(tenon, folder, case):
    path = folder / "config.json"
    made = CONFIG_TEXTS[case](path.read_text())
    path.write_bytes(made if isinstance(made, bytes) else made.encode())
    tenon.refused(INFO, folder, r"config\.json")


SIZES += ["head_dim", "vocab_size", "max_position_embeddings"]
MAY_BE_ABSENT = ["num_key_value_heads", "head_dim", "max_position_embeddings"]
NUMBERS = ["rms_norm_eps", "rope_theta"]
BAD_NUMBERS = ["string", "list", "object", "true", "negative", "1e300"]
BAD_FIELDS = [
    (field, value)
    for field in SIZES
    for value in WRONG
    if (value, field) not in {("absent", optional) for optional in MAY_BE_ABSENT}
]
BAD_FIELDS += [(field, value) for field in NUMBERS for value in BAD_NUMBERS]
BAD_FIELDS += [("rope_theta", "zero")]


@pytest.mark.parametrize("field, value", BAD_FIELDS)
def test_config_field(tenon, folder, field, value):
    put_config(folder, **{field: WRONG[value]})
    tenon.refused(INFO, folder, r"config\.json", field)


# Sizes within what a model may have, but not this one: the first tensor that differs is named.
NOT_THIS_ONE = {
    "hidden_size": [32, 128, 1 << 20, 1 << 24],
    "intermediate_size": [FFN - 32, FFN * 2, 1 << 24],
    "num_hidden_layers": [LAYERS - 1, LAYERS + 1, 5000],
    "num_attention_heads": [HEADS * 2, 64, 4096],
    "num_key_value_heads": [HEADS],
    "head_dim": [16, 64, 1 << 20],
    "vocab_size": [100, 300, 1 << 24],
}


@pytest.mark.parametrize("field, value", rows(NOT_THIS_ONE), ids=shown)
def test_config_of_another_model(tenon, folder, field, value):
    put_config(folder, **{field: value})
    word = rf"(model\.|lm_head)\S*weight|config\.json.*{field}|heads of width"
    tenon.refused(INFO, folder, word)
    tenon.refused(LOGITS, folder, word)


MORE_FIELDS = [
    ("model_type", "absent"),
    ("model_type", 5),
    ("model_type", []),
    ("model_type", ""),
    ("model_type", "no-such-model"),
    ("model_type", "x" * 100_000 + "\n"),
    ("num_key_value_heads", 3),  # 2 heads are no multiple of it
    ("tie_word_embeddings", "yes"),
    ("tie_word_embeddings", 1),
    ("attention_bias", "yes"),
    ("hidden_act", 5),
    ("hidden_act", "no-such-function"),
    ("rope_scaling", "linear"),
    ("rope_scaling", {"type": "linear"}),
    ("rope_scaling", {"type": "linear", "factor": 0}),
    ("rope_scaling", {"type": "linear", "factor": -2}),
    ("rope_scaling", {"type": "linear", "factor": "2"}),
    ("rope_scaling", {"type": "no-such-rule", "factor": 2}),
    ("rope_scaling", {"type": "yarn", "factor": 4, "original_max_position_embeddings": 0}),
    ("layer_types", "full_attention"),
    ("layer_types", ["full_attention"] * 100_000),
    ("layer_types", [1, 2]),
    ("text_config", "llama"),
    ("text_config", [1]),
]


@pytest.mark.parametrize("field, value", MORE_FIELDS, ids=shown)
def test_config_more_fields(tenon, folder, field, value):
    put_config(folder, **{field: value})
    tenon.refused(INFO, folder, r"config\.json", in_words(field))

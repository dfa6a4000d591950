"""Damaged tokenizer, template and small files beside the weights are refused by name."""

import json
import re

import chain
import pytest
from damaged_common import (
    GENERATE,
    INFO,
    LOGITS,
    POINTER,
    nested,
)

TEXT_FILES = {
    "tokenizer-cut": ("tokenizer.json", lambda text: text[: len(text) // 2]),
    "tokenizer-cut-at-its-end": ("tokenizer.json", lambda text: text.rstrip()[:-1]),
    "tokenizer-one-byte": ("tokenizer.json", lambda text: "{"),
    "tokenizer-empty-object": ("tokenizer.json", lambda text: "{}"),
    "tokenizer-a-list": ("tokenizer.json", lambda text: f"[{text}]"),
    "tokenizer-null": ("tokenizer.json", lambda text: "null"),
    "tokenizer-pointer": ("tokenizer.json", lambda text: POINTER.decode()),
    "tokenizer-nested-deep": ("tokenizer.json", lambda text: nested(100_000)),
    "tokenizer-no-model": ("tokenizer.json", lambda text: edited(text, model=None)),
    "tokenizer-model-unknown": (
        "tokenizer.json",
        lambda text: edited(text, model={"type": "none"}),
    ),
    "tokenizer-no-vocabulary": (
        "tokenizer.json",
        lambda text: edited(text, model={"type": "BPE", "merges": []}),
    ),
    "tokenizer-merges-of-no-tokens": (
        "tokenizer.json",
        lambda text: edited(text, model=bpe(merges=[["zz", "yy"]])),
    ),
    "tokenizer-negative-id": (
        "tokenizer.json",
        lambda text: edited(text, model=bpe(vocab={"a": -1})),
    ),
    "tokenizer-id-a-string": (
        "tokenizer.json",
        lambda text: edited(text, model=bpe(vocab={"a": "1"})),
    ),
    "tokenizer-id-2^32": (
        "tokenizer.json",
        lambda text: edited(text, model=bpe(vocab={"a": 1 << 32})),
    ),
    "tokenizer-id-2^32-1": (
        "tokenizer.json",
        lambda text: edited(text, model=bpe(vocab={"a": (1 << 32) - 1})),
    ),
    "tokenizer-id-2^31": (
        "tokenizer.json",
        lambda text: edited(text, model=bpe(vocab={"a": 1 << 31})),
    ),
    "tokenizer-id-2^31-2": (
        "tokenizer.json",
        lambda text: edited(text, model=bpe(vocab={"a": (1 << 31) - 2})),
    ),
    "tokenizer-added-id-2^31-2": (
        "tokenizer.json",
        lambda text: edited(text, added_tokens=[added("<x>", (1 << 31) - 2)]),
    ),
    "tokenizer-added-without-id": (
        "tokenizer.json",
        lambda text: edited(text, added_tokens=[{"content": "<x>"}]),
    ),
    "tokenizer-config-cut": ("tokenizer_config.json", lambda text: text[: len(text) // 2]),
    "tokenizer-config-a-list": ("tokenizer_config.json", lambda text: "[]"),
    "tokenizer-config-template-a-number": (
        "tokenizer_config.json",
        lambda text: '{"chat_template": 5}',
    ),
    "tokenizer-config-template-list": (
        "tokenizer_config.json",
        lambda text: '{"chat_template": [5]}',
    ),
    "tokenizer-config-template-cut": (
        "tokenizer_config.json",
        lambda text: json.dumps({"chat_template": chain.TEMPLATE[:40]}),
    ),
    "generation-config-cut": ("generation_config.json", lambda text: text[: len(text) // 2]),
    "generation-config-a-list": ("generation_config.json", lambda text: "[]"),
    "generation-config-a-string": ("generation_config.json", lambda text: '{"temperature": "hot"}'),
    "generation-config-negative": ("generation_config.json", lambda text: '{"temperature": -1}'),
    "kv-config-cut": ("kv_config.json", lambda text: "["),
    "kv-config-an-object": ("kv_config.json", lambda text: '{"layer_idx": 0}'),
    "kv-config-bits-0": ("kv_config.json", lambda text: '[{"layer_idx": 0, "bits": 0}]'),
    "kv-config-layer-2^40": (
        "kv_config.json",
        lambda text: '[{"layer_idx": 1099511627776, "bits": 8}]',
    ),
    "kv-config-group-33": (
        "kv_config.json",
        lambda text: '[{"layer_idx": 0, "bits": 8, "group_size": 33}]',
    ),
    "template-cut": ("chat_template.jinja", lambda text: chain.TEMPLATE[:40]),
    "template-unclosed": ("chat_template.jinja", lambda text: "{% for m in messages %}"),
}


def edited(text, **changes):
    return json.dumps(json.loads(text) | changes)


def bpe(**changes):
    return {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []} | changes


def added(content, number):
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    return {"id": number, "content": content, "special": True} | flags


@pytest.mark.parametrize("case", TEXT_FILES)
def test_files_beside_the_weights(tenon, folder, case):
    file, damage = TEXT_FILES[case]
    path = folder / file
    path.write_text(damage(path.read_text() if path.exists() else ""))
    tenon.refused(INFO, folder, re.escape(file))


def test_tokenizer_absent(tenon, folder):
    """Headers and logits do without; text does not."""
    (folder / "tokenizer.json").unlink()
    assert tenon.bounded(INFO, folder).code == 0
    assert tenon.bounded(LOGITS, folder).code == 0
    tenon.refused(GENERATE, folder, "tokenizer")


def test_tokenizer_of_a_larger_model(tenon, folder, vocabulary):
    """Ids that the embedding has no row for must not reach it."""
    path = folder / "tokenizer.json"
    size = len(vocabulary)
    path.write_text(edited(path.read_text(), added_tokens=[added("ab", size + 5)]))
    tenon.refused(GENERATE, folder, "tokenizer|token|vocabulary")

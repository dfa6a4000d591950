"""A safetensors file that is cut, lies or is no such file is refused in seconds, by name."""

import json
import os
import re

import pytest
from damaged import (
    FFN,
    HIDDEN,
    Safetensors,
)
from damaged_common import (
    EACH_VERB,
    GATE,
    GENERATE,
    INFO,
    LAST,
    LOGITS,
    NAN,
    POINTER,
    UP,
    UP_BYTES,
    as_folder,
    as_zeros,
    nested,
    offsets,
    verb_of,
)



@pytest.mark.parametrize("command", EACH_VERB, ids=verb_of)
def test_the_whole_folder_runs(tenon, good, command):
    ended = tenon.bounded(command, good)
    assert (ended.code, ended.err) == (0, ""), ended


@pytest.mark.parametrize("command", EACH_VERB, ids=verb_of)
def test_the_whole_gguf_runs(tenon, good_gguf, gguf_path, command):
    gguf_path.write_bytes(good_gguf.bytes())
    ended = tenon.bounded(command, gguf_path)
    assert (ended.code, ended.err) == (0, ""), ended


@pytest.mark.parametrize("command", EACH_VERB, ids=verb_of)
def test_whole_shards_run(tenon, sharded, command):
    ended = tenon.bounded(command, sharded)
    assert (ended.code, ended.err) == (0, ""), ended


def header(change):
    """Damage to the header's text."""
    return lambda t: t.bytes(text=change(t.text()))


def up(**changes):
    """Damage to the entry of one tensor."""
    return lambda t: t.entry(UP, **changes).bytes()


def listed_again(text, key, value):
    """The header's text with one more entry at its end."""
    return f"{text[:-1]},{json.dumps(key)}:{value}}}"


EMPTY = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'  # an entry without bytes
SAFETENSORS = {
    # cut at every section
    "empty": (lambda t: b"", []),
    "cut-in-the-length": (lambda t: t.bytes()[:5], []),
    "cut-after-the-length": (lambda t: t.bytes()[:8], []),
    "cut-in-the-header": (lambda t: t.bytes()[: t.header_end() // 2], []),
    "cut-before-the-header-ends": (lambda t: t.bytes()[: t.header_end() - 1], []),
    "cut-where-the-header-ends": (
        lambda t: t.bytes()[: t.header_end()],
        ["model.embed_tokens.weight"],
    ),
    "cut-in-a-tensor": (lambda t: t.bytes()[: sum(t.file_span(UP)) // 2], [UP]),
    "cut-between-tensors": (lambda t: t.bytes()[: t.file_span(UP)[0]], [UP]),
    "one-byte-short": (lambda t: t.bytes()[:-1], [LAST]),
    "one-byte-missing-at-the-front": (lambda t: t.bytes()[1:], []),
    # the length of the header
    "length-0": (lambda t: t.bytes(length=0), []),
    "length-1": (lambda t: t.bytes(length=1), []),
    "length-one-less": (lambda t: t.bytes(length=len(t.text()) - 1), []),
    "length-past-the-end": (lambda t: t.bytes(length=len(t.bytes()) - 7), []),
    "length-100-MB": (lambda t: t.bytes(length=100_000_000), []),
    "length-1-TB": (lambda t: t.bytes(length=1 << 40), []),
    "length-2^63-1": (lambda t: t.bytes(length=(1 << 63) - 1), []),
    "length-2^63": (lambda t: t.bytes(length=1 << 63), []),
    "length-2^64-8": (lambda t: t.bytes(length=(1 << 64) - 8), []),
    "length-2^64-1": (lambda t: t.bytes(length=(1 << 64) - 1), []),
    # what is not a header
    "zeros": (lambda t: bytes(4096), []),
    "a-pointer-to-the-file": (lambda t: POINTER, []),
    "a-web-page": (lambda t: b"<!DOCTYPE html><html>" * 50, []),
    "not-json": (header(lambda text: "this is no header"), []),
    "all-spaces": (header(lambda text: " " * 4096), []),
    "null-bytes": (header(lambda text: "\0" * 4096), []),
    "an-array": (header(lambda text: "[]"), []),
    "a-number": (header(lambda text: "17"), []),
    "a-string": (header(lambda text: '"tensors"'), []),
    "null": (header(lambda text: "null"), []),
    "utf-16": (header(lambda text: text.encode("utf-16")), []),
    "text-after-it": (header(lambda text: text + "{}"), []),
    "comma-at-the-end": (header(lambda text: text[:-1] + ",}"), []),
    "not-closed": (header(lambda text: text[:-1]), []),
    "invalid-utf-8": (header(lambda text: text.encode().replace(b"up_proj", b"up_\xff\xfej")), []),
    "nested-deep": (header(lambda text: listed_again(text, "deep", nested(100_000))), ["deep"]),
    "nested-deep-at-once": (header(lambda text: nested(100_000)), []),
    "metadata-of-numbers": (header(lambda text: listed_again(text, "__metadata__", '{"a":1}')), []),
    "metadata-is-a-list": (header(lambda text: listed_again(text, "__metadata__", "[]")), []),
    # one entry
    "entry-is-a-number": (header(lambda text: listed_again(text, "extra", "5")), ["extra"]),
    "entry-is-null": (header(lambda text: listed_again(text, "extra", "null")), ["extra"]),
    "entry-is-a-list": (header(lambda text: listed_again(text, "extra", "[1]")), ["extra"]),
    "entry-is-empty": (header(lambda text: listed_again(text, "extra", "{}")), ["extra"]),
    "entry-has-more": (up(strides=[1]), [UP]),
    "name-empty": (header(lambda text: listed_again(text, "", EMPTY)), ["empty"]),
    "dtype-unknown": (up(dtype="F33"), [UP, "F33"]),
    "dtype-in-small-letters": (up(dtype="f32"), [UP, "f32"]),
    "dtype-not-built": (up(dtype="F8_E5M2"), [UP, "F8_E5M2"]),
    "dtype-empty": (up(dtype=""), [UP]),
    "dtype-a-number": (up(dtype=32), [UP]),
    "dtype-null": (up(dtype=None), [UP]),
    "dtype-absent": (up(dtype="absent"), [UP]),
    "dtype-narrower": (up(dtype="F16"), [UP]),
    "dtype-wider": (up(dtype="F64"), [UP]),
    "shape-absent": (up(shape="absent"), [UP]),
    "shape-null": (up(shape=None), [UP]),
    "shape-a-number": (up(shape=FFN * HIDDEN), [UP]),
    "shape-a-string": (up(shape="[256, 64]"), [UP]),
    "shape-of-strings": (up(shape=["256", "64"]), [UP]),
    "shape-nested": (up(shape=[[FFN, HIDDEN]]), [UP]),
    "shape-negative": (up(shape=[-FFN, -HIDDEN]), [UP]),
    "shape-of-floats": (up(shape=[256.0, 64.0]), [UP]),
    "shape-too-large": (up(shape=[FFN, HIDDEN + 1]), [UP]),
    "shape-too-small": (up(shape=[FFN - 1, HIDDEN]), [UP]),
    "shape-zero": (up(shape=[0, HIDDEN]), [UP]),
    "shape-of-1-TB": (up(shape=[1 << 32, HIDDEN]), [UP]),
    "shape-overflows": (up(shape=[1 << 32, 1 << 32]), [UP]),
    "shape-overflows-in-bytes": (up(shape=[1 << 61, 2], data_offsets=[0, 0]), [UP]),
    "shape-wraps-to-zero": (up(shape=[1 << 32, 1 << 32], data_offsets=[0, 0]), [UP]),
    "shape-wraps-to-its-bytes": (
        up(shape=[(1 << 62) + FFN * HIDDEN], data_offsets=[0, UP_BYTES]),
        [UP],
    ),
    "shape-2^63": (up(shape=[1 << 63, 2]), [UP]),
    "shape-2^64": (up(shape=[1 << 64]), [UP]),
    "shape-0-times-2^63": (up(shape=[0, 1 << 63], data_offsets=[0, 0]), [UP]),
    "shape-of-very-many-ones": (up(shape=[1] * 100_000 + [FFN, HIDDEN]), [UP]),
    "offsets-absent": (up(data_offsets="absent"), [UP]),
    "offsets-null": (up(data_offsets=None), [UP]),
    "offsets-a-number": (up(data_offsets=0), [UP]),
    "offsets-one": (up(data_offsets=[0]), [UP]),
    "offsets-three": (up(data_offsets=[0, 1, 2]), [UP]),
    "offsets-of-strings": (up(data_offsets=["0", str(UP_BYTES)]), [UP]),
    "offsets-negative": (up(data_offsets=[-UP_BYTES, 0]), [UP]),
    "offsets-of-floats": (up(data_offsets=[0.0, float(UP_BYTES)]), [UP]),
    "offsets-reversed": (lambda t: t.entry(UP, data_offsets=offsets(t)[::-1]).bytes(), [UP]),
    "offsets-outside": (
        lambda t: t.entry(UP, data_offsets=[1 << 40, (1 << 40) + UP_BYTES]).bytes(),
        [UP],
    ),
    "offsets-past-the-end": (
        lambda t: t.entry(UP, data_offsets=[len(t.data) - UP_BYTES + 4, len(t.data) + 4]).bytes(),
        [UP],
    ),
    "offsets-of-2^64": (up(data_offsets=[0, 1 << 64]), [UP]),
    "offsets-wrap": (up(data_offsets=[(1 << 64) - 4, UP_BYTES - 4]), [UP]),
    "offsets-too-few-bytes": (
        lambda t: t.entry(UP, data_offsets=[offsets(t)[0], offsets(t)[1] - 4]).bytes(),
        [UP],
    ),
    "offsets-too-many-bytes": (
        lambda t: t.entry(UP, data_offsets=[offsets(t)[0], offsets(t)[1] + 4]).bytes(),
        [UP],
    ),
    "offsets-of-another-tensor": (
        lambda t: t.entry(UP, data_offsets=offsets(t, GATE)).bytes(),
        [UP, GATE],
    ),
    "offsets-overlap-by-one-value": (
        lambda t: t.entry(UP, data_offsets=[at - 4 for at in offsets(t)]).bytes(),
        [UP, GATE],
    ),
    # names listed twice
    "name-twice": (header(lambda text: listed_again(text, UP, EMPTY)), [UP]),
    "name-twice-in-a-row": (
        lambda t: t.bytes(t.text().replace(f'"{GATE}"', f'"{UP}"')),
        [UP],
    ),
    "dtype-twice": (
        header(lambda text: text.replace('"dtype"', '"dtype":"F32","dtype"', 1)),
        ["dtype"],
    ),
    "metadata-twice": (
        header(
            lambda text: listed_again(
                listed_again(text, "__metadata__", "{}"), "__metadata__", "{}"
            )
        ),
        ["__metadata__"],
    ),
    "name-twice-of-a-megabyte-and-two-lines": (
        header(lambda text: listed_again(listed_again(text, LONG, EMPTY), LONG, EMPTY)),
        ["two?lines"],
    ),
}
LONG = "two\nlines\r\x1b[31m" + "x" * 1_000_000


@pytest.mark.parametrize("case", SAFETENSORS)
def test_safetensors(tenon, folder, tensors, case):
    damage, words = SAFETENSORS[case]
    (folder / "model.safetensors").write_bytes(damage(tensors))
    tenon.refused(INFO, folder, "model.safetensors", *map(re.escape, words))


@pytest.mark.parametrize("command", [LOGITS, GENERATE], ids=verb_of)
@pytest.mark.parametrize(
    "case", ["cut-in-the-header", "one-byte-short", "offsets-past-the-end", "shape-overflows"]
)
def test_safetensors_when_weights_are_read(tenon, folder, tensors, case, command):
    damage, words = SAFETENSORS[case]
    (folder / "model.safetensors").write_bytes(damage(tensors))
    tenon.refused(command, folder, "model.safetensors", *map(re.escape, words))


def test_bytes_that_no_tensor_covers_change_nothing(tenon, good, folder, tensors):
    """Writers that align leave holes; what no header entry points at is never read."""
    holes = tensors.without(UP).appended(
        UP, "F32", [FFN, HIDDEN], tensors.data[slice(*offsets(tensors))]
    )
    (folder / "model.safetensors").write_bytes(holes.bytes() + NAN * 100)
    outs = []
    for model in (good, folder):
        assert tenon.bounded(LOGITS, model).code == 0
        outs.append(Safetensors.read(tenon.made).data)
    assert outs[0] == outs[1]


def as_pipe(path):
    path.unlink()
    os.mkfifo(path)


def as_dangling_link(path):
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def as_link_to_itself(path):
    path.unlink()
    path.symlink_to(path)


ODD_FILES = {
    "folder": as_folder,
    "pipe": as_pipe,
    "link-to-itself": as_link_to_itself,
    "dangling-link": as_dangling_link,
    "empty": as_zeros(0),
    "zeros-1-GB": as_zeros(1 << 30),
}


@pytest.mark.parametrize("kind", ODD_FILES)
@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_odd_files(tenon, folder, file, kind):
    ODD_FILES[kind](folder / file)
    if (file, kind) == ("tokenizer.json", "dangling-link"):
        tenon.refused(GENERATE, folder, "tokenizer")  # absent: only text needs it
    else:
        tenon.refused(INFO, folder, re.escape(file))


def test_a_shape_that_is_true_but_not_the_models(tenon, folder, tensors):
    """Two gigabytes of zeros that are there, in a file with holes: refused before they are read."""
    size = 2 << 30
    file = folder / "model.safetensors"
    span = [len(tensors.data), len(tensors.data) + size]
    huge = tensors.entry(UP, shape=[size // 4 // HIDDEN, HIDDEN], data_offsets=span)
    file.write_bytes(huge.bytes())
    os.truncate(file, huge.header_end() + span[1])
    for command in (INFO, LOGITS):
        tenon.refused(command, folder, "model.safetensors", re.escape(UP), str(size // 4 // HIDDEN))

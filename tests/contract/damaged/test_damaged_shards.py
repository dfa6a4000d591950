"""Shards that are missing, or an index that lies, are refused by name."""

import json
import shutil

import pytest
from damaged import (
    FFN,
    HIDDEN,
)
from damaged_common import (
    EMBED,
    FIRST,
    INDEX,
    INFO,
    LAST,
    NORM,
    POINTER,
    SECOND,
    UP,
    ZEROS,
    as_folder,
    as_zeros,
    edit,
    nested,
    place,
)



def all_of(*damages):
    def damage(folder):
        for each in damages:
            each(folder)

    return damage


def gone(file):
    return lambda folder: (folder / file).unlink()


ELSEWHERE = f"{UP}.*(not the name|folder)"
SHARDS = {
    "first-missing": (gone(FIRST), [FIRST]),
    "second-missing": (gone(SECOND), [SECOND]),
    "all-missing": (all_of(gone(FIRST), gone(SECOND)), [FIRST]),
    "second-missing-and-no-index": (all_of(gone(INDEX), gone(SECOND)), [SECOND]),
    "first-missing-and-no-index": (all_of(gone(INDEX), gone(FIRST)), [FIRST]),
    "second-empty": (edit(SECOND, lambda t: b""), [SECOND]),
    "second-a-pointer": (edit(SECOND, lambda t: POINTER), [SECOND]),
    "second-cut-in-the-header": (edit(SECOND, lambda t: t.bytes()[:200]), [SECOND]),
    "second-one-byte-short": (edit(SECOND, lambda t: t.bytes()[:-1]), [SECOND, LAST]),
    "second-without-a-tensor": (edit(SECOND, lambda t: t.without(UP)), [SECOND, UP]),
    "second-misshapen": (edit(SECOND, lambda t: t.entry(UP, shape=[HIDDEN, FFN])), [SECOND, UP]),
    "shards-exchanged": (
        lambda folder: [
            (folder / FIRST).rename(folder / "third"),
            (folder / SECOND).rename(folder / FIRST),
            (folder / "third").rename(folder / SECOND),
        ],
        [FIRST],
    ),
    "one-twice": (
        lambda folder: shutil.copy(folder / FIRST, folder / SECOND),
        [FIRST, SECOND, EMBED],
    ),
    "tensor-in-both": (
        edit(SECOND, lambda t: t.appended(NORM, "F32", [HIDDEN], ZEROS)),
        [FIRST, SECOND, NORM],
    ),
    "tensor-in-both-and-no-index": (
        all_of(gone(INDEX), edit(SECOND, lambda t: t.appended(NORM, "F32", [HIDDEN], ZEROS))),
        [FIRST, SECOND, NORM],
    ),
    "whole-file-beside-the-shards": (
        all_of(
            gone(INDEX), lambda folder: shutil.copy(folder / FIRST, folder / "model.safetensors")
        ),
        ["model.safetensors", FIRST, EMBED],
    ),
    "index-names-an-absent-shard": (
        place("extra", "model-00003-of-00003.safetensors"),
        ["model-00003-of-00003.safetensors"],
    ),
    "index-names-an-absent-tensor": (place("extra", SECOND), [SECOND, "extra"]),
    "index-names-the-wrong-shard": (place(UP, FIRST), [FIRST, UP]),
    "index-up-one-folder": (place(UP, "../" + SECOND), [INDEX, ELSEWHERE]),
    "index-up-and-down": (place(UP, "../model/" + SECOND), [INDEX, ELSEWHERE]),
    "index-in-a-folder": (place(UP, "weights/" + SECOND), [INDEX, ELSEWHERE]),
    "index-absolute": (place(UP, "/etc/passwd"), [INDEX, ELSEWHERE]),
    "index-backslash": (place(UP, "..\\" + SECOND), [INDEX, ELSEWHERE]),
    "index-empty-name": (place(UP, ""), [INDEX, ELSEWHERE]),
    "index-dot": (place(UP, "."), [INDEX, ELSEWHERE]),
    "index-null-byte": (place(UP, SECOND + "\0"), [INDEX, ELSEWHERE]),
    "index-line-break": (place(UP, SECOND + "\n"), [INDEX, ELSEWHERE]),
    "index-names-itself": (place(UP, INDEX), [INDEX]),
    "index-names-the-config": (place(UP, "config.json"), ["config.json"]),
    "index-very-long-name": (place(UP, "x" * 100_000 + ".safetensors"), ["xxx"]),
    "index-place-a-number": (place(UP, 2), [INDEX, UP]),
    "index-place-null": (place(UP, None), [INDEX, UP]),
    "index-place-a-list": (place(UP, [SECOND]), [INDEX, UP]),
    "index-empty": (edit(INDEX, lambda index: b""), [INDEX]),
    "index-cut": (edit(INDEX, lambda index: json.dumps(index).encode()[:-40]), [INDEX]),
    "index-a-list": (edit(INDEX, lambda index: [index]), [INDEX]),
    "index-null": (edit(INDEX, lambda index: None), [INDEX]),
    "index-no-map": (edit(INDEX, lambda index: {"metadata": {}}), [INDEX, "weight_map"]),
    "index-map-a-list": (
        edit(INDEX, lambda index: {"weight_map": list(index["weight_map"])}),
        [INDEX, "weight_map"],
    ),
    "index-map-empty": (edit(INDEX, lambda index: {"weight_map": {}}), [INDEX, "weight_map"]),
    "index-nested-deep": (edit(INDEX, lambda index: nested(100_000).encode()), [INDEX]),
    "index-is-a-folder": (lambda folder: as_folder(folder / INDEX), [INDEX]),
    "index-zeros-1-GB": (lambda folder: as_zeros(1 << 30)(folder / INDEX), [INDEX]),
    "series-of-99999": (
        all_of(
            gone(INDEX),
            gone(SECOND),
            lambda folder: (folder / FIRST).rename(folder / "model-00001-of-99999.safetensors"),
        ),
        ["model-00002-of-99999.safetensors"],
    ),
    "series-of-00000": (
        all_of(
            gone(INDEX),
            gone(SECOND),
            lambda folder: (folder / FIRST).rename(folder / "model-00001-of-00000.safetensors"),
        ),
        ["model"],
    ),
}


@pytest.mark.parametrize("case", SHARDS)
def test_shards(tenon, sharded, case):
    damage, words = SHARDS[case]
    damage(sharded)
    tenon.refused(INFO, sharded, *words)

"""`tenon perplexity` against mlx-lm's logits, `tenon verify --against mlx` against what must be 0."""

import json
import math
import subprocess

import mlx.core as mx
import numpy as np
import pytest
from tokenizers import Tokenizer

import chain
import oracle
import tenon

TEXT = "The row law holds. tokens, faster; ba be bi bo bu " * 12


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scoring") / "model"
    chain.make_random_model(folder)
    (folder.parent / "text.txt").write_text(TEXT)
    return folder


def run(verb, model, *flags, code=0):
    done = subprocess.run(
        [str(tenon.BINARY), verb, "--model", str(model), *map(str, flags)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def mean_nll(model, context, stride):
    """Every token but the first once, given what its window holds before it."""
    ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode(TEXT).ids
    network = oracle.load(model)
    network.set_dtype(mx.float32)
    total, count, scored = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        window = ids[begin : begin + context]
        logits = oracle.to_numpy(network(mx.array([window])))[0].astype(np.float64)
        log_p = (
            logits
            - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
            - logits.max(-1, keepdims=True)
        )
        for i in range(max(scored - begin, 1), len(window)):
            total -= log_p[i - 1, window[i]]
            count += 1
        scored = begin + len(window)
        if scored == len(ids):
            return total / count, count, len(ids)


@pytest.mark.parametrize("context,stride", [(512, 512), (64, 64), (64, 16), (50, 7)])
def test_perplexity_is_that_of_mlx_lm(model, context, stride):
    want, count, tokens = mean_nll(model, context, stride)
    got = json.loads(
        run(
            "perplexity",
            model,
            "--file",
            model.parent / "text.txt",
            "--context",
            context,
            "--stride",
            stride,
            "--kernels",
            "mlx",
            "--json",
        )
    )
    assert (got["scored"], got["tokens"]) == (count, tokens)
    assert got["nll"] == pytest.approx(want, abs=2e-6)
    assert got["perplexity"] == pytest.approx(math.exp(want), rel=1e-5)


def test_perplexity_for_people(model):
    text = run("perplexity", model, "--file", model.parent / "text.txt", "--context", 64)
    assert "perplexity" in text and "windows of 64, stride 64" in text


@pytest.mark.parametrize(
    "flags,code,words",
    [
        ([], 2, "--file"),
        (["--file", "/nowhere/text"], 1, "/nowhere/text"),
        (["--file", "/dev/null"], 1, "two"),
        (["--file", "TEXT", "--context", "16", "--stride", "17"], 1, "--stride 17"),
    ],
)
def test_perplexity_refuses(model, flags, code, words):
    flags = [str(model.parent / "text.txt") if flag == "TEXT" else flag for flag in flags]
    assert words in run("perplexity", model, *flags, code=code)


def test_the_reference_agrees_with_itself(model):
    got = json.loads(
        run(
            "verify",
            model,
            "--against",
            "mlx",
            "--kernels",
            "mlx",
            "--file",
            model.parent / "text.txt",
            "--context",
            100,
            "--positions",
            250,
            "--json",
        )
    )
    assert (got["positions"], got["top1_agreement"], got["top1_differ"]) == (250, 1, 0)
    assert got["mean_kl"] == got["max_kl"] == got["largest_logit_difference"] == 0


def test_lower_precision_is_seen(model):
    got = json.loads(
        run(
            "verify",
            model,
            "--against",
            "mlx",
            "--kernels",
            "mlx",
            "--dtype",
            "bfloat16",
            "--positions",
            100,
            "--json",
        )
    )
    assert got["positions"] == 100 and got["kernels"] == "mlx"
    assert 1e-7 < got["mean_kl"] <= got["p99_kl"] <= got["max_kl"] < 0.1


def test_our_kernels_are_near(model):
    got = json.loads(run("verify", model, "--against", "mlx", "--positions", 300, "--json"))
    assert got["mean_kl"] < 1e-4 and got["top1_agreement"] > 0.99, got


def test_verify_wants_to_know_against_what(model):
    assert "--against" in run("verify", model, code=2)

"""The BERT encoder against its equations written out in NumPy in float64, on tiny random checkpoints; and
what vectors must not depend on: other texts, how many there are, the number of threads.
"""
import json
import math
import subprocess

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import tenon

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "mat", "##s", "##ting", "un", "##happy", ".", ","]
CONFIG = dict(model_type="bert", hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
              vocab_size=len(WORDS), max_position_embeddings=40, type_vocab_size=2, layer_norm_eps=1e-12,
              hidden_act="gelu")
TEXTS = ["The cat sat on the mat.", "cats", "unhappy cats, sitting on the mat. " * 3, "the", "zebra"]


def random_tensors(rng):
    width, ffn = CONFIG["hidden_size"], CONFIG["intermediate_size"]

    def matrix(out, into):
        return (rng.standard_normal((out, into)) * 1.2 / np.sqrt(into)).astype(np.float32)

    tensors = {
        "embeddings.word_embeddings.weight": rng.standard_normal((CONFIG["vocab_size"], width)).astype(np.float32),
        "embeddings.position_embeddings.weight": rng.standard_normal((40, width)).astype(np.float32),
        "embeddings.token_type_embeddings.weight": rng.standard_normal((2, width)).astype(np.float32),
        "embeddings.position_ids": np.arange(40, dtype=np.int64)[None],
        "pooler.dense.weight": matrix(width, width),
        "pooler.dense.bias": np.zeros(width, np.float32),
    }

    def norm(name):
        tensors[name + ".weight"] = rng.uniform(0.7, 1.3, width).astype(np.float32)
        tensors[name + ".bias"] = rng.uniform(-0.2, 0.2, width).astype(np.float32)

    def linear(name, out, into):
        tensors[name + ".weight"] = matrix(out, into)
        tensors[name + ".bias"] = rng.uniform(-0.2, 0.2, out).astype(np.float32)

    norm("embeddings.LayerNorm")
    for i in range(CONFIG["num_hidden_layers"]):
        at = f"encoder.layer.{i}."
        for part in ("query", "key", "value"):
            linear(at + "attention.self." + part, width, width)
        linear(at + "attention.output.dense", width, width)
        norm(at + "attention.output.LayerNorm")
        linear(at + "intermediate.dense", ffn, width)
        linear(at + "output.dense", width, ffn)
        norm(at + "output.LayerNorm")
    return tensors


def tokenizer():
    t = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    t.enable_truncation(8)  # what a file says for training; texts must not be cut by it
    return t


def write(folder, prefix="", pooling="mean", normalize=True, **changes):
    folder.mkdir(parents=True)
    tensors = random_tensors(np.random.default_rng(3))
    save_file({prefix + k: v for k, v in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(
        dict(pooling_mode_cls_token=pooling == "cls", pooling_mode_mean_tokens=pooling == "mean")))
    kinds = ["Transformer", "Pooling"] + (["Normalize"] if normalize else [])
    (folder / "modules.json").write_text(json.dumps(
        [dict(idx=i, type=f"sentence_transformers.models.{kind}") for i, kind in enumerate(kinds)]))
    return tensors


def reference(tensors, ids, act, pooling, normalize):
    w = {name: value.astype(np.float64) for name, value in tensors.items()}

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * w[name + ".weight"] + w[name + ".bias"]

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def gelu(x):
        if act == "gelu":
            return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    n, heads = len(ids), CONFIG["num_attention_heads"]
    h = norm(w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:n]
             + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(CONFIG["num_hidden_layers"]):
        at = f"encoder.layer.{i}."
        q, k, v = (linear(h, at + "attention.self." + part).reshape(n, heads, -1).transpose(1, 0, 2)
                   for part in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        p = np.exp(scores - scores.max(-1, keepdims=True))
        a = (p / p.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(n, -1)
        h = norm(h + linear(a, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        h = norm(h + linear(gelu(linear(h, at + "intermediate.dense")), at + "output.dense"), at + "output.LayerNorm")
    y = h[0] if pooling == "cls" else h.mean(0)
    return y / np.linalg.norm(y) if normalize else y


def embed(folder, texts, *flags, code=0):
    done = subprocess.run([str(tenon.BINARY), "embed", "--model", str(folder), "--json", *flags],
                          input="\n".join(texts), capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    if code:
        return done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["index"] for line in lines] == list(range(len(texts)))
    return [line["tokens"] for line in lines], np.array([line["embedding"] for line in lines])


@pytest.mark.parametrize("kernels", ["mlx", "tenon"])
@pytest.mark.parametrize("act,pooling,normalize,prefix", [
    ("gelu", "mean", True, ""), ("gelu_new", "cls", False, "bert."), ("gelu", "cls", True, "")])
def test_vectors_are_those_of_the_equations(kernels, act, pooling, normalize, prefix, tmp_path):
    folder = tmp_path / "model"
    tensors = write(folder, prefix, pooling, normalize, hidden_act=act)
    words = tokenizer()
    words.no_truncation()
    counts, vectors = embed(folder, TEXTS, "--kernels", kernels, "--kv", "f32")
    for text, count, vector in zip(TEXTS, counts, vectors):
        ids = words.encode(text).ids
        assert count == len(ids)
        np.testing.assert_allclose(vector, reference(tensors, ids, act, pooling, normalize), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("kernels", ["mlx", "tenon"])
def test_no_text_sees_another(kernels, tmp_path):
    folder = tmp_path / "model"
    write(folder)
    many = TEXTS * 40  # more than one step
    _, together = embed(folder, many, "--kernels", kernels)
    for text, vector in zip(TEXTS, together):
        _, alone = embed(folder, [text], "--kernels", kernels, "--threads", "1")
        assert np.array_equal(alone[0], vector), text
    assert np.array_equal(together, np.tile(together[:len(TEXTS)], (40, 1)))


def test_too_long_a_text_is_named_and_not_cut(tmp_path):
    folder = tmp_path / "model"
    write(folder)
    error = embed(folder, ["cat", "cat " * 39], code=1)
    assert "text 2 has 41 tokens" in error and "at most 40" in error and len(error.splitlines()) == 1, error


@pytest.mark.parametrize("changes,word", [
    (dict(hidden_act="relu"), "hidden_act"), (dict(num_attention_heads=5), "num_attention_heads"),
    (dict(position_embedding_type="relative_key"), "position_embedding_type"), (dict(hidden_size=128), "word_embeddings"),
    (dict(num_hidden_layers=4), "encoder.layer.3")])
def test_what_the_graph_lacks_is_refused(changes, word, tmp_path):
    folder = tmp_path / "model"
    write(folder, **changes)
    error = embed(folder, ["cat"], code=1)
    assert word in error and len(error.splitlines()) == 1, error


def test_encoders_do_not_write(tmp_path):
    folder = tmp_path / "model"
    write(folder)
    for verb, word in (("generate", "tenon embed"), ("info", "")):
        done = subprocess.run([str(tenon.BINARY), verb, "--model", str(folder), *(["hi"] if verb == "generate" else [])],
                              capture_output=True, text=True, timeout=60)
        assert (done.returncode == 0) == (verb == "info"), done.stderr
        assert word in done.stderr
        if verb == "info":
            assert "bert-encoder" in done.stdout

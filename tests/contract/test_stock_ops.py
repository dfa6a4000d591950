"""Where MLX's stock ops keep the row law on this device, op by op: the same rows computed alone, in pairs,
in fours and all at once. The law of a whole model rests on these; the exceptions are listed, and a
listed one that keeps the law fails too, so the list stays true.
"""
import mlx.core as mx
import numpy as np
import pytest

mx.set_default_device(mx.cpu)
ROWS = 16
SPLITS = (1, 2, 4, 8)
DTYPES = {"f32": mx.float32, "bf16": mx.bfloat16}
WIDTHS = (576, 1536, 4096)


def random(*shape, dtype, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return mx.array((scale * rng.standard_normal(shape)).astype(np.float32)).astype(dtype)


def same(a, b):
    return np.array_equal(np.array(a.astype(mx.float32)), np.array(b.astype(mx.float32)))


def matmul(width, dtype):
    w = random(64, width, dtype=dtype, scale=width**-0.5, seed=1)
    return lambda x: x @ w.T


def addmm(width, dtype):
    w = random(64, width, dtype=dtype, scale=width**-0.5, seed=1)
    bias = random(64, dtype=dtype, seed=2)
    return lambda x: mx.addmm(bias, x, w.T)


def quantized(bits, group):
    def make(width, dtype):
        w = random(64, width, dtype=mx.float32, scale=width**-0.5, seed=1)
        packed, scales, biases = mx.quantize(w, group, bits)
        scales, biases = scales.astype(dtype), biases.astype(dtype)
        return lambda x: mx.quantized_matmul(x, packed, scales=scales, biases=biases,
                                             transpose=True, group_size=group, bits=bits)
    return make


def rms_norm(width, dtype):
    w = random(width, dtype=dtype, seed=1)
    return lambda x: mx.fast.rms_norm(x, w, 1e-6)


def silu_gate(width, dtype):
    return lambda x: x * mx.sigmoid(x) * x


OPS = {"matmul": matmul, "addmm": addmm, "rms_norm": rms_norm, "silu_gate": silu_gate}
OPS |= {f"qmm{bits}g{group}": quantized(bits, group)
        for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64)}
BREAKS = set()  # (op, dtype, width) on the CPU wheel of MLX 0.32.4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_rowwise_op(op, dtype):
    for width in WIDTHS:
        f = OPS[op](width, DTYPES[dtype])
        x = random(ROWS, width, dtype=DTYPES[dtype], seed=3)
        whole = f(x)
        kept = all(same(mx.concatenate([f(x[i:i + n]) for i in range(0, ROWS, n)], 0), whole)
                   for n in SPLITS)
        assert kept == ((op, dtype, width) not in BREAKS), f"{op} {dtype} width {width}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keys", [40, 300, 1100])
def test_attention_of_the_last_rows(dtype, keys):
    """A query's attention is the same in a causal whole, in the last four, alone, and over a prefix."""
    q = random(1, 8, keys, 64, dtype=DTYPES[dtype], seed=1)
    k = random(1, 2, keys, 64, dtype=DTYPES[dtype], seed=2)
    v = random(1, 2, keys, 64, dtype=DTYPES[dtype], seed=3)
    attend = mx.fast.scaled_dot_product_attention
    whole = attend(q, k, v, scale=0.125, mask="causal")
    four = attend(q[:, :, -4:], k, v, scale=0.125, mask="causal")
    one = attend(q[:, :, -1:], k, v, scale=0.125)
    shorter = attend(q[:, :, -3:-2], k[:, :, :-2], v[:, :, :-2], scale=0.125)
    assert same(four, whole[:, :, -4:])
    assert same(one, whole[:, :, -1:])
    assert same(shorter, whole[:, :, -3:-2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rope_of_single_positions(dtype):
    x = random(1, 4, ROWS, 64, dtype=DTYPES[dtype], seed=1)
    whole = mx.fast.rope(x, 64, traditional=False, base=10000.0, scale=1.0, offset=5)
    single = mx.concatenate([mx.fast.rope(x[:, :, i:i + 1], 64, traditional=False, base=10000.0,
                                          scale=1.0, offset=5 + i) for i in range(ROWS)], 2)
    assert same(single, whole)

"""What a server holds: one copy of the weights at load, nothing more after ten thousand steps, and no CPU
while it waits.
"""
import os
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

import server as servers
import tenon

COPY_MAX = 1.15  # of the file: packed weights, and the pages being read
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SANITIZED = servers.PATIENCE > 1  # shadow memory would be measured instead
pytestmark = pytest.mark.skipif(SANITIZED, reason="sanitizers hold memory of their own")


def status_kb(server, field):
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith(field + ":")))


def cpu_s(server):
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def tiny_twin(path, hidden=32, ffn=32, context=4096):
    """The default model's vocabulary and template around one layer of next to nothing."""
    source = gguf.GGUFReader(tenon.DEFAULT_MODEL)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_context_length(context)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(49152)
    for name, field in source.fields.items():
        if name.startswith("tokenizer."):
            kind = field.types[0]
            sub = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), kind, sub)
    rng = np.random.default_rng(1)
    shapes = {"token_embd": (49152, hidden), "output_norm": (hidden,), "blk.0.attn_norm": (hidden,),
              "blk.0.ffn_norm": (hidden,), "blk.0.attn_q": (hidden, hidden), "blk.0.attn_k": (hidden // 2, hidden),
              "blk.0.attn_v": (hidden // 2, hidden), "blk.0.attn_output": (hidden, hidden),
              "blk.0.ffn_gate": (ffn, hidden), "blk.0.ffn_up": (ffn, hidden), "blk.0.ffn_down": (hidden, ffn)}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name + ".weight", values)
        else:
            writer.add_tensor(name + ".weight", gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0),
                              raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_twin(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def test_loading_holds_one_copy_of_the_weights(tiny, tmp_path):
    peak = {}
    for model in (tiny, tenon.DEFAULT_MODEL):
        server = servers.start_real(tmp_path / "log", model)
        peak[model] = status_kb(server, "VmHWM") * 1024
        server.stop()
    weights = tenon.DEFAULT_MODEL.stat().st_size - tiny.stat().st_size
    assert peak[tenon.DEFAULT_MODEL] - peak[tiny] <= COPY_MAX * weights


def test_an_idle_server_uses_no_cpu(tmp_path):
    server = servers.start_real(tmp_path / "log", tenon.DEFAULT_MODEL)
    try:
        assert server.completion("One", max_tokens=2, temperature=0).status == 200
        time.sleep(0.5)
        before, start = cpu_s(server), time.monotonic()
        time.sleep(4)
        assert (cpu_s(server) - before) / (time.monotonic() - start) < 0.01
    finally:
        server.stop()


def test_ten_thousand_steps_hold_no_more_than_a_thousand(tiny, tmp_path):
    server = servers.start_real(tmp_path / "log", tiny)

    def steps(count):
        for _ in range(count // 1000):
            reply = server.completion("One", max_tokens=1000, temperature=0, ignore_eos=True)
            assert reply.status == 200 and reply.json()["usage"]["completion_tokens"] == 1000

    try:
        steps(1000)
        before = status_kb(server, "VmRSS")
        steps(10000)
        grown = status_kb(server, "VmRSS") - before
        assert grown <= 512, f"{grown} kB"  # a reply's text and the allocator's rounding
        assert server.stats()["kv_copies"] == 0
    finally:
        server.stop()

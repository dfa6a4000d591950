"""One measured run of mlx-lm on the CPU: loads a directory, warms up, reads a random prompt, writes
tokens greedily, prints one JSON object with the figures of `tenon bench`.

  mlx_run.py MODEL_DIR --prompt 32 --gen 8 --seed 2

Activations are float32, which is the fastest that MLX's CPU code has.
"""

import argparse
import json
import random
import time
from pathlib import Path

import mlx.core as mx
import mlx_lm
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model


def run(model, ids, gen_len):
    """Times of the start and of each token."""
    cache = make_prompt_cache(model)
    times = [time.perf_counter()]
    token = mx.argmax(model(mx.array([ids]), cache=cache)[0, -1])
    for left in reversed(range(gen_len)):
        mx.eval(token, [c.state for c in cache])
        times.append(time.perf_counter())
        if left:
            token = mx.argmax(model(token.reshape(1, 1), cache=cache)[0, -1])
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--gen", type=int, default=8)
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)
    model, config = load_model(options.model)
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    pick = random.Random(options.seed)
    ids = [pick.randrange(config["vocab_size"]) for _ in range(options.prompt)]
    run(model, ids[:4], 2)
    times = run(model, ids, options.gen)
    decode_s = times[-1] - times[1]
    print(
        json.dumps(
            {
                "prefill_tok_s": len(ids) / (times[1] - times[0]),
                "decode_tok_s": (options.gen - 1) / decode_s if decode_s else 0,
                "ttft_ms": (times[1] - times[0]) * 1000,
                "engine": f"mlx-lm {mlx_lm.__version__}",
            }
        )
    )


main()

"""Runs `tenon logits` and reads what it wrote."""
import os
import subprocess
from pathlib import Path

from safetensors.numpy import load_file

REPO = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("TENON_BIN", REPO / "build/release/tenon"))
DEFAULT_MODEL = REPO / "share/models/smollm2-135m-instruct-q4_1.gguf"


def logits(model, ids, steps, out, *flags, batch_with=(), timeout=600, env=None):
    command = [str(BINARY), "logits", "--model", str(model), "--ids", ",".join(map(str, ids)),
               "--steps", str(steps), "--out", str(out), "--context", "256", *map(str, flags)]
    for other in batch_with:
        command += ["--batch-with", ",".join(map(str, other))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(env or {})})
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    tensors = load_file(out)
    return tensors["logits"], tensors["ids"]

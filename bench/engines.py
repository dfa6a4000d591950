"""The engines that are compared. A measured run is a process that loads, warms up and prints one
JSON object with prefill_tok_s, decode_tok_s, ttft_ms and a name.
"""

import json
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build/bench"
NODE_LLAMA_CPP = "3.21.1"
RUN_S_MAX = 1800


@dataclass(frozen=True)
class Case:
    """What is measured: so many prompts at once, their length, and tokens written for each."""

    batch: int
    prompt: int
    gen: int

    def flags(self):
        return ["--prompt", str(self.prompt), "--gen", str(self.gen), "--batch", str(self.batch)]


def run_json(command, env=None):
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        env=dict(os.environ, **(env or {})),
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stderr}"
        )
    return json.loads(done.stdout.strip().splitlines()[-1])


class Tenon:
    name = "Tenon"

    def __init__(self, binary, threads, kernels):
        self.binary, self.threads, self.kernels = binary, threads, kernels

    def measure(self, model, case, seed):
        sample = run_json(
            [
                self.binary,
                "bench",
                "--json",
                "--repeat",
                1,
                "--model",
                model,
                "--prompt-len",
                case.prompt,
                "--gen-len",
                case.gen,
                "--batch",
                case.batch,
                "--threads",
                self.threads,
                "--kernels",
                self.kernels,
            ]
        )
        return dict(sample, engine=f"Tenon ({sample['kernels']} kernels)")

    def shorten(self, case):
        return case


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, threads, flash_attention):
        self.threads, self.flash_attention = threads, flash_attention
        install_llama()

    def measure(self, model, case, seed):
        return run_json(
            [
                "node",
                ROOT / "bench/llama.mjs",
                WORK,
                model,
                *case.flags(),
                "--threads",
                self.threads,
                "--seed",
                seed,
                "--flash-attention",
                self.flash_attention,
            ]
        )

    def shorten(self, case):
        return case


class MlxLm:
    """Slow on a CPU, so it reads and writes less, and only one stream."""

    name = "mlx-lm"

    def measure(self, model, case, seed):
        return run_json(
            [
                ROOT / ".venv/bin/python",
                ROOT / "bench/mlx_run.py",
                model,
                "--prompt",
                case.prompt,
                "--gen",
                case.gen,
                "--seed",
                seed,
            ]
        )

    def shorten(self, case):
        return Case(1, min(case.prompt, 32), min(case.gen, 8)) if case.batch == 1 else None


def install_llama():
    """The prebuilt llama.cpp for this machine's CPU, without the GPU variants."""
    package = WORK / "node_modules/node-llama-cpp/package.json"
    if package.exists() and json.loads(package.read_text())["version"] == NODE_LLAMA_CPP:
        return
    if not shutil.which("npm"):
        raise SystemExit(
            "compare: node and npm (Node.js 20 or later) are needed for llama.cpp; install them or "
            "leave it out with --engines tenon,mlx-lm"
        )
    arch = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    system = platform.system().lower()
    print(f"installing node-llama-cpp {NODE_LLAMA_CPP} into {WORK.relative_to(ROOT)}", flush=True)
    WORK.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            "npm",
            "install",
            "--prefix",
            str(WORK),
            "--no-save",
            "--no-package-lock",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
            "--omit=optional",
            f"node-llama-cpp@{NODE_LLAMA_CPP}",
            f"@node-llama-cpp/{system}-{arch}@{NODE_LLAMA_CPP}",
        ],
        check=True,
        env=dict(os.environ, NODE_LLAMA_CPP_SKIP_DOWNLOAD="true"),
    )

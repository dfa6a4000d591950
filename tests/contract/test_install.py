"""`make install` gives a program that runs by itself: with its libraries and its model, and no environment."""
import os
import subprocess
from pathlib import Path

import server as servers


def test_the_installed_program_runs_alone(tmp_path):
    prefix = tmp_path / "prefix"
    done = subprocess.run(["cmake", "--install", servers.BUILD, "--prefix", prefix], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([prefix / "bin" / "tenon", "generate", "--temperature", "0", "--max-tokens", "8",
                          "What is the capital of France?"], capture_output=True, text=True, timeout=60, env={},
                         cwd=tmp_path)
    assert ran.returncode == 0 and "Paris" in ran.stdout, ran.stderr
    inside = subprocess.run(["ldd", prefix / "bin" / "tenon"], capture_output=True, text=True).stdout
    own = [line.split("=>")[1].split("(")[0].strip() for line in inside.splitlines()
           if "libmlx" in line or "lapack" in line]
    assert own and all(Path(os.path.realpath(path)).is_relative_to(prefix) for path in own), inside

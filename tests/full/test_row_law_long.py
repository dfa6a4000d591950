"""The row law end to end, on the default model with our kernels: 50 prompts x 200 greedy tokens give the
same text and the same logprobs alone, in batches of 2, 5 and 8 whose rows come one after the other, and
with the prompt cut into pieces of 1, 7 and 512 tokens. Minutes, so in `make parity-full`.
"""
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "http"))
import server as servers  # noqa: E402

pytestmark = pytest.mark.timeout(3600)

PROMPTS, TOKENS = 50, 200
CROWDS = [(2, ()), (5, ()), (8, ()), (1, ("--prefill-chunk", "1")), (1, ("--prefill-chunk", "7")),
          (1, ("--prefill-chunk", "512")), (8, ("--prefill-chunk", "7", "--threads", "1"))]


def prompts():
    """Pieces of this repository's prose, 40 to 1,600 characters."""
    root = Path(__file__).resolve().parents[2]
    text = (root / "LICENSE").read_text() + (root / "ARCHITECTURE.md").read_text()
    return [text[(at := 397 * i % (len(text) - 1600)):at + 40 + 31 * i] for i in range(PROMPTS)]


def ask_all(folder, batch, flags):
    server = servers.start_real(folder / "log", servers.DEFAULT_MODEL, "--max-batch", str(batch), *flags)
    todo, got = list(enumerate(prompts())), {}

    def work(mine):
        for i, prompt in mine:
            reply = server.completion(prompt, max_tokens=TOKENS, temperature=0, ignore_eos=True, logprobs=1)
            assert reply.status == 200, reply
            got[i] = (reply.json()["choices"][0]["text"], reply.json()["choices"][0]["logprobs"])

    try:
        threads = [threading.Thread(target=work, args=(todo[i::batch],)) for i in range(batch)]
        for thread in threads:
            thread.start()
            time.sleep(0.21)  # rows join while others decode
        for thread in threads:
            thread.join(1200)
    finally:
        server.stop()
    return got


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    got = ask_all(tmp_path_factory.mktemp("alone"), 1, ())
    assert len(got) == PROMPTS
    assert all(len(logprobs["token_logprobs"]) == TOKENS for _, logprobs in got.values())
    return got


@pytest.mark.parametrize("batch,flags", CROWDS)
def test_a_crowd_gives_what_each_gets_alone(batch, flags, alone, tmp_path):
    got = ask_all(tmp_path, batch, flags)
    assert got.keys() == alone.keys()
    different = [i for i in got if got[i] != alone[i]]
    assert not different, f"prompts {different} differ"

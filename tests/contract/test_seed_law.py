"""The seed law: a request's text is a function of its prompt, its settings and its seed. Not of who else
is in the batch, when they came, how the prompt was cut, or whether the reply is streamed. The oracle is
the same request alone on a server with room for one row.
"""
import threading

import pytest

import chain
import server as servers

PROMPTS = ["The row law holds.", "x" * 90, "1, 2, 3, 4, 5, 6, 7,", "tokens, faster"]
SETTINGS = {
    "greedy": dict(temperature=0),
    "plain": dict(temperature=0.8),
    "hot": dict(temperature=1.5, top_p=0.95),
    "filters": dict(temperature=1.0, top_k=40, min_p=0.02, xtc_probability=0.5, xtc_threshold=0.05),
    "penalties": dict(temperature=1.0, repetition_penalty=1.3, presence_penalty=0.5,
                      frequency_penalty=0.2, logit_bias={"97": 2.5}),
}
TOKENS = 30


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seed-law") / "model"
    chain.make_random_model(folder)
    return folder


def ask(server, prompt, settings, seed):
    reply = server.completion(prompt, max_tokens=TOKENS, seed=seed, ignore_eos=True, logprobs=3,
                              **settings)
    assert reply.status == 200, reply
    choice = reply.json()["choices"][0]
    return choice["text"], choice["logprobs"]


def jobs():
    return [(prompt, name, seed) for name in SETTINGS for prompt in PROMPTS for seed in (0, 2**64 - 1)]


@pytest.fixture(scope="module")
def alone(model, tmp_path_factory):
    server = servers.start_real(tmp_path_factory.mktemp("log") / "alone", model, "--max-batch", "1")
    try:
        return {job: ask(server, job[0], SETTINGS[job[1]], job[2]) for job in jobs()}
    finally:
        server.stop()


@pytest.mark.parametrize("batch,gap_ms", [(3, 200), (8, 1)])
def test_text_and_logprobs_of_a_crowd_equal_those_alone(model, alone, batch, gap_ms, tmp_path):
    """gap_ms 1 cuts prompts into the smallest pieces; the crowd arrives faster than it is served."""
    server = servers.start_real(tmp_path / "crowd", model, "--max-batch", str(batch), "--gap-ms",
                                str(gap_ms))
    got = {}

    def work(mine):
        for prompt, name, seed in mine:
            got[prompt, name, seed] = ask(server, prompt, SETTINGS[name], seed)

    try:
        todo = jobs()
        threads = [threading.Thread(target=work, args=(todo[i::10],)) for i in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(servers.REPLY_S * 4)
    finally:
        server.stop()
    assert got.keys() == alone.keys()
    for job, want in alone.items():
        assert got[job] == want, f"{job}: {got[job][0]!r} is not {want[0]!r}"


def test_seeds_and_settings_matter(alone):
    """Otherwise equal texts would prove nothing."""
    for name in SETTINGS:
        texts = {job: text for job, (text, _) in alone.items() if job[1] == name}
        distinct = len(set(texts.values()))
        assert distinct >= (len(PROMPTS) if name == "greedy" else 2 * len(PROMPTS)), (name, texts)

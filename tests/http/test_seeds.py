"""Seeds (B18) on both servers: the real one rolls dice (chain.py), the fake one draws letters.

The seed law: the same seed gives the same text, alone, in a batch, warm or streamed.
"""

import threading

import pytest
import server as servers

ROLLS = 25


def roll(server, seed=None, **fields):
    reply = server.chat(
        "[[chain dice]]",
        max_tokens=ROLLS,
        ignore_eos=True,
        seed=seed,
        **({"temperature": 1} | fields),
    )
    assert reply.status == 200, reply
    return reply.json()["choices"][0]["message"]["content"]


def at_once(jobs):
    """Runs all of them side by side, begun together; their results in order."""
    out, gate = [None] * len(jobs), threading.Barrier(len(jobs))

    def run(i):
        gate.wait()
        out[i] = jobs[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(servers.REPLY_S)
    return out


def test_different_seeds_differ(server):
    assert len({roll(server, seed) for seed in (0, 1, 2, 3, 7)}) == 5


@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_seed_repeats(server, seed):
    assert len({roll(server, seed) for _ in range(5)}) == 1


def test_no_seed_differs(server):
    assert len({roll(server) for _ in range(5)}) == 5


def test_seeds_in_one_batch(server):
    """Seeds 7 and 8 at once, ten times: each as alone."""
    alone = {seed: roll(server, seed) for seed in (7, 8)}
    assert alone[7] != alone[8]
    for attempt in range(10):
        got = at_once([lambda s=s: roll(server, s) for s in (7, 8)])
        assert got == [alone[7], alone[8]], f"attempt {attempt}"


def test_a_full_batch_of_seeds(server):
    alone = [roll(server, seed) for seed in range(8)]
    assert at_once([lambda s=s: roll(server, s) for s in range(8)]) == alone


def test_streamed_as_whole(server):
    for seed in (0, 7):
        choices, _ = servers.both_ways(
            server, "[[chain dice]]", temperature=1, max_tokens=ROLLS, seed=seed, ignore_eos=True
        )
        assert choices[0]["text"] == roll(server, seed)


@pytest.mark.parametrize("seed", [2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63)])
def test_any_64_bit_integer_is_a_seed(server, seed):
    reply = server.chat(
        "[[chain dice]]", temperature=1, max_tokens=ROLLS, ignore_eos=True, seed=seed
    )
    assert reply.status == 200, reply
    assert reply.json()["seed"] == seed % 2**64, "every bit of it came through"
    assert roll(server, seed) == reply.json()["choices"][0]["message"]["content"]


def test_neighbours_past_a_double_differ(server):
    """2^53 and 2^53 + 1 are one number to a parser that reads doubles."""
    assert roll(server, 2**53) != roll(server, 2**53 + 1)


def test_the_drawn_seed_is_reported_and_repeats(server):
    first = server.chat("[[chain dice]]", temperature=1, max_tokens=ROLLS, ignore_eos=True).json()
    assert roll(server, first["seed"]) == first["choices"][0]["message"]["content"]
    events = server.chat(
        "[[chain dice]]", temperature=1, max_tokens=ROLLS, ignore_eos=True, stream=True
    ).events()
    choices, _ = servers.joined(events)
    assert roll(server, events[0]["seed"]) == choices[0]["text"]


def test_temperature_0_ignores_the_seed(server):
    assert len({roll(server, seed, temperature=0) for seed in (None, 1, 2)}) == 1


def test_filters_narrow_the_draw(real):
    """Near-fair dice of 16: a filter that leaves one word leaves no chance; a hot draw meets most
    words.
    """

    def texts(**fields):
        return {roll(real, seed, **fields) for seed in range(4)}

    likeliest = {roll(real, temperature=0)}
    assert len(texts()) == 4 and len(set(" ".join(texts()).split())) > 8
    for one in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1}):
        assert texts(**one) == likeliest, one
    assert len(texts(top_k=2)) > 1 and len(texts(temperature=5)) == 4

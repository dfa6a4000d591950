"""Many clients at once (B34) and prompts that share beginnings (B23): each gets what it gets alone.

Code words run on both servers. The random model (chain.py), whose every word depends on the whole
prompt, shows the same for a real cache; in float32 a difference there is a fault, not rounding.
"""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import server as servers
from conftest import WORDS


def code_word(server, word, way):
    """One request for a code word in one of several ways; (what it said, what it should say)."""
    name, text = f"word-{word}", server.text(f"word-{word}")
    if way == "completion":
        return (
            server.completion(server.prompt(name), temperature=0).json()["choices"][0]["text"],
            text,
        )
    if way == "stop":
        reply = server.chat(server.say(name), temperature=0, stop=f"{word}-1").json()
        return reply["choices"][0]["message"]["content"], f" {word}-0 "
    if way == "stream":
        events = server.chat(server.say(name), temperature=0, stream=True).events()
        return servers.joined(events)[0][0]["text"], text
    if way == "pair":
        reply = server.completion([server.prompt(name)] * 2, temperature=0).json()
        return "|".join(c["text"] for c in reply["choices"]), f"{text}|{text}"
    return (
        server.chat(server.say(name), temperature=1, seed=len(word)).json()["choices"][0][
            "message"
        ]["content"],
        text,
    )


def leave(server, word):
    """Sends and closes before the answer."""
    messages = [{"role": "user", "content": f"[[chain word-{word}]]"}]
    body = json.dumps({"messages": messages, "stream": True}).encode()
    with server.connect() as connection:
        connection.sendall(
            servers.head(
                "POST",
                "/v1/chat/completions",
                "content-type: application/json",
                f"content-length: {len(body)}",
            )
            + body
        )


def test_each_client_hears_its_own_word(server):
    """16 clients, 300 requests (80 of the real one) of all ways, some given up."""
    rounds = 19 if server.kind == "fake" else 5
    ways = ["chat", "stream", "completion", "stop", "pair"]
    wrong = []

    def client(number):
        rng = random.Random(number)
        word = WORDS[number]
        for i in range(rounds):
            way = rng.choice([*ways, "leave"])
            if way == "leave":
                leave(server, word)
                continue
            said, expected = code_word(server, word, way)
            if said != expected:
                wrong.append((word, way, i, said, expected))

    with ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(client, n) for n in range(16)]:
            done.result(servers.REPLY_S * 2)
    assert not wrong, f"{len(wrong)} answers were not their own: {wrong[:5]}"
    server.wait_idle(5)
    server.check()


def test_two_clients_at_once_get_what_they_get_alone(server):
    names = ["alphabet", "emoji"]

    def ask(name):
        choices, usage = servers.both_ways(
            server, server.say(name), temperature=0, logprobs=True, top_logprobs=3
        )
        usage.pop("prompt_tokens_details")
        return choices, usage

    alone = [ask(n) for n in names]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            assert list(pool.map(ask, names)) == alone


def test_a_short_request_is_not_stuck_behind_a_long_one(real):
    stop = threading.Event()

    def long_one():
        while not stop.is_set():
            real.chat("[[chain loop]]", temperature=0, max_tokens=2000)

    thread = threading.Thread(target=long_one)
    thread.start()
    try:
        servers.wait_until("the long one runs", lambda: real.stats()["running"] > 0, 10)
        start = time.monotonic()
        real.check()
        assert time.monotonic() - start < 5 * servers.PATIENCE
    finally:
        stop.set()
        thread.join(servers.REPLY_S)


# --- B23


@pytest.fixture(scope="module")
def random_server(logs, random_model):
    server = servers.start_real(logs / "random.log", random_model, "--dtype", "float32")
    yield server
    server.stop()


SYSTEMS = ["You count.", "You count!", "You sing a long song about rivers and stones."]
SHARED = "The quick brown fox jumps over the lazy dog and runs on over hill and dale, "


def conversations():
    """Prompts that share N tokens (bytes) and then differ by one, N across every block border to
    64.
    """
    pairs = [(SHARED[:n] + c) for n in (1, 15, 16, 17, 31, 32, 33, 63, 64, 65) for c in "AB"]
    talks = [[{"role": "user", "content": text}] for text in pairs]
    talks += [
        [{"role": "system", "content": s}, {"role": "user", "content": "Go on."}] for s in SYSTEMS
    ]
    return talks


def talk(server, messages):
    reply = server.chat(messages, temperature=0, max_tokens=5)
    assert reply.status == 200, reply
    return reply.json()["choices"][0]["message"]["content"]


def test_shared_beginnings_never_mix(random_server):
    talks = conversations()
    cold = [talk(random_server, messages) for messages in talks]
    assert len(set(cold)) > len(talks) * 0.8, "the model tells prompts apart"
    order = list(range(len(talks)))
    random.Random(1).shuffle(order)
    with ThreadPoolExecutor(3) as pool:
        warm = list(pool.map(lambda i: (i, talk(random_server, talks[i])), order))
    wrong = [(talks[i], said, cold[i]) for i, said in warm if said != cold[i]]
    assert not wrong, f"{len(wrong)} of {len(order)} differ from the cold answer; first: {wrong[0]}"


def test_a_turn_later_is_as_cold(random_server, random_model, logs):
    """A conversation grown turn by turn equals the same history sent to a fresh server."""
    history, said = [], []
    for question in ("Hi.", "And then?", "Why?"):
        history.append({"role": "user", "content": question})
        said.append(talk(random_server, history))
        history.append({"role": "assistant", "content": said[-1]})
    fresh = servers.start_real(logs / "fresh.log", random_model, "--dtype", "float32")
    try:
        assert talk(fresh, history[:5]) == said[2]
        assert talk(fresh, history[:1]) == said[0]
    finally:
        fresh.stop()


def test_a_batch_of_random_models_rows_is_as_alone(random_server):
    talks = conversations()[:8]
    alone = [talk(random_server, messages) for messages in talks]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert list(pool.map(lambda m: talk(random_server, m), talks)) == alone

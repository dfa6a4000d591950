"""A request's life: clients that leave (B06), token limits (B19), n and lists (B20), the window
(B21), queues and the end of the server. The slow fake engine makes "within a step" a matter of
milliseconds to measure.
"""

import socket
import struct
import threading
import time

import pytest
import server as servers

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
# On the slow fake about four seconds.
TALK = {
    "messages": [{"role": "user", "content": "talk"}],
    "max_tokens": 200,
    "ignore_eos": True,
    "stream": True,
}


def send(server, path, body):
    """A request on a raw connection, nothing read yet."""
    import json

    raw = json.dumps(body).encode()
    connection = server.connect()
    connection.sendall(
        servers.head("POST", path, "content-type: application/json", f"content-length: {len(raw)}")
        + raw
    )
    return connection


def slam(connection):
    """Closes with a reset, as a killed client does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def running(server, count):
    return servers.wait_until(
        f"{count} requests running", lambda: server.stats()["running"] == count, 10
    )


def read_until(connection, what):
    """Reads until `what` has come."""
    seen = b""
    while what not in seen:
        got = connection.recv(4096)
        assert got, f"the connection ended without {what!r}: {seen!r}"
        seen += got


def fill(server, rows=8):
    """Takes all rows of the slow fake for some seconds, one by one as its queue is short."""
    taken = []
    for i in range(rows):
        taken.append(send(server, CHAT, TALK))
        running(server, i + 1)
    return taken


LEAVES = {
    "close": lambda c: c.close(),
    "reset": slam,
    "half-close": lambda c: c.shutdown(socket.SHUT_WR),
}


# --- B06


@pytest.mark.parametrize("how", LEAVES)
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_row(slow_fake, how, stream):
    """20 ms a step: the row must be gone long before the reply's 4 seconds."""
    slow_fake.wait_idle()  # a reply ends before its row does: the row seen below must be this one's
    connection = send(
        slow_fake,
        CHAT,
        {
            "messages": [{"role": "user", "content": "talk"}],
            "stream": stream,
            "max_tokens": 200,
            "ignore_eos": True,
        },
    )
    try:
        running(slow_fake, 1)
        if stream:
            read_until(connection, b"data: ")
        before = slow_fake.stats()["cancelled"]
        LEAVES[how](connection)
        took = slow_fake.wait_idle(1)
        assert took < 0.5 * servers.PATIENCE, f"it took {took:.2f} s"
        assert slow_fake.stats()["cancelled"] == before + 1
    finally:
        connection.close()
    slow_fake.check()


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_during_prefill(slow_fake, stream):
    """50 ms a chunk of 32, and seven of them: freed within one."""
    connection = send(
        slow_fake,
        COMPLETIONS,
        {
            "prompt": "x" * 230 + str(time.monotonic_ns() % 10**9),
            "stream": stream,
            "max_tokens": 10,
        },
    )
    running(slow_fake, 1)
    drawn = slow_fake.stats()["completion_tokens"]
    connection.close()
    slow_fake.wait_idle(1)
    assert slow_fake.stats()["completion_tokens"] == drawn, "no token was drawn"
    slow_fake.check()


def test_leaving_while_queued(slow_fake):
    """Rows are full; those who wait and leave are not served later."""
    rows = fill(slow_fake)
    waiting = [send(slow_fake, CHAT, TALK) for _ in range(3)]
    servers.wait_until("three wait", lambda: slow_fake.stats()["waiting"] == 3, 5)
    for connection in waiting + rows:
        connection.close()
    slow_fake.wait_idle(2)
    slow_fake.check()


def test_the_queue_is_bounded(slow_fake):
    """8 rows, 4 may wait: the rest is told to come back, at once."""
    rows = fill(slow_fake)
    rows += [send(slow_fake, CHAT, TALK) for _ in range(4)]
    servers.wait_until("four wait", lambda: slow_fake.stats()["waiting"] == 4, 5)
    reply = slow_fake.chat("one too many")
    assert reply.status == 429 and int(reply.headers["retry-after"]) > 0, reply
    reply.error()
    assert slow_fake.request("GET", "/health").status == 200
    for connection in rows:
        connection.close()
    slow_fake.wait_idle(2)
    slow_fake.check()


def test_leaving_the_real_engine(real):
    """An endless chain of up to 8,000 tokens; and the next one is quick and right."""
    for stream in (True, False):
        connection = send(
            real,
            CHAT,
            {
                "messages": [{"role": "user", "content": "[[chain loop]]"}],
                "stream": stream,
                "max_tokens": 8000,
                "temperature": 0,
            },
        )
        running(real, 1)
        if stream:
            read_until(connection, b"data: ")
        before = real.stats()["completion_tokens"]
        connection.close()
        real.wait_idle(2)
        assert real.stats()["completion_tokens"] - before < 6000, "it went on to the end"
        real.check()


def test_leaving_during_a_real_prefill(real):
    connection = send(real, COMPLETIONS, {"prompt": "word " * 1600, "max_tokens": 10})
    time.sleep(0.02)
    connection.close()
    real.wait_idle(10)
    real.check()


def test_hit_and_run(server):
    """Fifty clients that send and slam; nobody stays behind."""
    for i in range(50):
        slam(
            send(
                server,
                CHAT,
                {"messages": [{"role": "user", "content": f"talk {i}"}], "stream": bool(i % 2)},
            )
        )
    server.wait_idle(10)
    server.check()


def test_a_reader_that_takes_nothing_is_not_waited_for(real):
    """Its own reply may stall; others are served and its row goes when it leaves."""
    connection = send(
        real,
        CHAT,
        {
            "messages": [{"role": "user", "content": "[[chain loop]]"}],
            "stream": True,
            "max_tokens": 8000,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": 20,
        },
    )
    running(real, 1)
    real.check()
    connection.close()
    real.wait_idle(5)


# --- B19

LIMITS = [
    # value, status, completion tokens of an endless reply (None: not counted)
    (0, 400, None),
    (-1, 400, None),
    (1.5, 400, None),
    ("5", 400, None),
    (True, 400, None),
    (1, 200, 1),
    (3, 200, 3),
    (2**31, 200, None),
    (2**62, 200, None),
    (None, 200, None),
]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value, status, count", LIMITS, ids=[repr(v[0]) for v in LIMITS])
def test_token_limits(narrow, field, value, status, count):
    for ask, content in (
        (narrow.chat, narrow.say("check")),
        (narrow.completion, narrow.prompt("check")),
    ):
        reply = ask(content, temperature=0, ignore_eos=count is not None, **{field: value})
        assert reply.status == status, reply
        if status == 400:
            assert reply.error()["param"] == field
        elif count:
            assert reply.json()["usage"]["completion_tokens"] == count
            assert reply.json()["choices"][0]["finish_reason"] == "length"
        else:
            assert reply.json()["choices"][0]["finish_reason"] == "stop"


def test_both_limits(server):
    same = server.chat(server.say("check"), max_tokens=2, max_completion_tokens=2)
    assert same.json()["usage"]["completion_tokens"] == 2
    reply = server.chat(server.say("check"), max_tokens=2, max_completion_tokens=3)
    assert reply.status == 400 and reply.error()["param"] == "max_completion_tokens", reply


# --- B20


def dice(server, **fields):
    return server.chat("[[chain dice]]", temperature=1, max_tokens=12, ignore_eos=True, **fields)


def test_n_choices_differ_and_repeat(server):
    runs = [dice(server, n=3, seed=1).json() for _ in range(2)]
    texts = [[c["message"]["content"] for c in run["choices"]] for run in runs]
    assert [c["index"] for c in runs[0]["choices"]] == [0, 1, 2]
    assert len(set(texts[0])) == 3, f"three choices that differ: {texts[0]}"
    assert texts[0] == texts[1], "the same seed repeats all of them"
    alone = dice(server, seed=1).json()
    assert (
        alone["choices"][0]["message"]["content"] == texts[0][0]
    ), "choice 0 is the reply without n"
    usage = runs[0]["usage"]
    assert usage["completion_tokens"] == 36
    assert usage["prompt_tokens"] == alone["usage"]["prompt_tokens"], "the prompt counts once"


@pytest.mark.parametrize("surface", ["chat", "completions"])
def test_n_choices_streamed(server, surface):
    content = "[[chain dice]]" if surface == "chat" else "<|go:dice|>"
    choices, _ = servers.both_ways(
        server, content, surface, temperature=1, seed=9, n=4, max_tokens=10, ignore_eos=True
    )
    assert sorted(choices) == [0, 1, 2, 3]
    assert len({c["text"] for c in choices.values()}) > 1


def test_n_choices_end_each_in_its_own_time(fake):
    """The fake ends by chance: one choice that stops must not stop the others."""
    for seed in range(6):
        choices, _ = servers.both_ways(
            fake, "tell me", temperature=1, seed=seed, n=4, max_tokens=60
        )
        if {c["finish"] for c in choices.values()} == {"stop", "length"}:
            return
    raise AssertionError("no seed gave both ends; choose others")


def test_n_with_several_prompts(server):
    prompts = [server.prompt("check"), server.prompt("quote")]
    choices, _ = servers.both_ways(server, prompts, "completions", temperature=0, n=2)
    names = ["check", "check", "quote", "quote"]
    assert [choices[i]["text"] for i in range(4)] == [server.text(n) for n in names]


def test_prompts_as_ids(server):
    ids = server.post("/tokenize", {"content": server.prompt("check")}).json()["tokens"]
    for prompt in (ids, [ids], [ids, ids]):
        reply = server.completion(prompt, temperature=0)
        assert {c["text"] for c in reply.json()["choices"]} == {server.text("check")}, reply


def test_bad_prompts(server):
    size = server.stats()["models"][0]["vocab_size"]
    for prompt in (
        "",
        [],
        [[]],
        [[], [1]],
        [""],
        ["a", ""],
        [size],
        [-1],
        [[size]],
        [2**31],
        [2**63],
        None,
    ):
        reply = server.completion(prompt, max_tokens=1)
        assert reply.status == 400 and reply.error()["param"] == "prompt", f"{prompt}: {reply}"
    assert server.completion([size - 1], max_tokens=1).status == 200, "the last id is an id"
    server.check()


# --- B21


def tokens(count):
    return [120] * count  # the byte "x" in both vocabularies


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("count", [257, 300, 10_000])
def test_a_prompt_past_the_window_is_refused_with_both_numbers(narrow, count, stream):
    replies = [
        narrow.completion(tokens(count), stream=stream, max_tokens=5),
        narrow.completion("x" * count, stream=stream, max_tokens=5),
    ]
    for reply in replies:
        assert reply.status == 400, reply
        assert reply.headers["content-type"] == "application/json", "before the stream starts"
        error = reply.error()
        assert error["code"] == "context_length_exceeded", error
        assert str(count) in error["message"] and "256" in error["message"], error
    chat = narrow.chat("x" * count, stream=stream)
    assert chat.status == 400 and chat.error()["code"] == "context_length_exceeded", chat
    assert "256" in chat.error()["message"]
    narrow.check()


def test_at_the_border(narrow):
    last = narrow.completion(tokens(255), max_tokens=5, temperature=0, ignore_eos=True)
    assert last.status == 200 and last.json()["usage"]["completion_tokens"] == 1, last
    assert last.json()["choices"][0]["finish_reason"] == "length"
    full = narrow.completion(tokens(256), max_tokens=5, temperature=0, ignore_eos=True)
    if full.status == 200:  # the last token is never fed back, so one more may be drawn
        assert full.json()["choices"][0]["finish_reason"] == "length"
        assert full.json()["usage"]["prompt_tokens"] == 256
        assert full.json()["usage"]["completion_tokens"] <= 1
    else:
        assert full.error()["code"] == "context_length_exceeded", full


@pytest.mark.parametrize("limit", [50, None])
def test_a_reply_ends_at_the_window(narrow, limit):
    for stream in (False, True):
        reply = narrow.completion(
            tokens(250),
            max_tokens=limit,
            temperature=0,
            ignore_eos=True,
            stream=stream,
            **({"stream_options": {"include_usage": True}} if stream else {}),
        )
        choices, usage = (
            servers.joined(reply.events(), "completions")
            if stream
            else servers.whole(reply.json(), "completions")
        )
        assert choices[0]["finish"] == "length", choices
        assert usage["prompt_tokens"] == 250 and usage["completion_tokens"] == 6, usage


def test_nothing_is_cut_in_silence(narrow):
    """A chat up to the window counts every one of its tokens."""
    empty = narrow.chat("x", max_tokens=1).json()["usage"]["prompt_tokens"] - 1
    for extra in (100, 255 - empty):
        reply = narrow.chat("x" * extra, max_tokens=1)
        assert (
            reply.status == 200 and reply.json()["usage"]["prompt_tokens"] == empty + extra
        ), reply
    over = narrow.chat("x" * (257 - empty), max_tokens=1)
    assert over.status == 400 and "257" in over.error()["message"], over


# --- keep-alive, progress, the end


def test_comments_during_silence(slow_fake):
    """Nothing to say for over a second while eight others are served: a comment keeps the line
    open.
    """
    rows = fill(slow_fake)
    waiting = send(slow_fake, CHAT, TALK)
    seen = b""
    until = time.monotonic() + 6 * servers.PATIENCE
    while b"\n: " not in seen and time.monotonic() < until:
        seen += waiting.recv(4096)
    for connection in [*rows, waiting]:
        connection.close()
    assert b": keep-alive" in seen, seen
    slow_fake.wait_idle(2)


def test_progress_events(server):
    prompt = "count me " * 12 + server.prompt("check")
    events = server.completion(
        prompt, temperature=0, stream=True, stream_options={"include_progress": True}
    ).events()
    progress = [e["prompt_progress"] for e in events if "prompt_progress" in e]
    assert progress and progress[-1]["processed"] == progress[-1]["total"], progress
    done = [p["processed"] for p in progress]
    assert done == sorted(done)
    assert servers.joined(events, "completions")[0][0]["text"] == server.text("check")


def test_sigterm_lets_a_reply_finish(logs):
    server = servers.start_fake(logs / "term.log", token_ms=20)
    replies = []

    def talk():
        options = {"include_usage": True}
        replies.append(
            server.chat("talk", max_tokens=50, ignore_eos=True, stream=True, stream_options=options)
        )

    thread = threading.Thread(target=talk)
    thread.start()
    running(server, 1)
    server.terminate()
    thread.join(10 * servers.PATIENCE)
    server.stop()
    choices, usage = servers.joined(replies[0].events())
    assert choices[0]["finish"] == "length" and usage["completion_tokens"] == 50, choices


def test_sigterm_cuts_at_the_deadline(logs, chain_model):
    """A reply that would take longer than --drain-ms is ended; the exit code stays 0."""
    server = servers.start_real(logs / "drain.log", chain_model.folder, "--drain-ms", "100")
    connection = send(
        server,
        CHAT,
        {
            "messages": [{"role": "user", "content": "[[chain loop]]"}],
            "max_tokens": 8000,
            "stream": True,
            "temperature": 0,
        },
    )
    assert connection.recv(64)
    start = time.monotonic()
    server.stop()
    assert time.monotonic() - start < 5 * servers.PATIENCE
    connection.close()


def test_a_taken_port_is_a_clear_error(fake, chain_model):
    code, _, err = servers.run_tenon(
        "serve", "--model", chain_model.folder, "--port", fake.port, timeout=30
    )
    assert code == 1 and str(fake.port) in err and "--port" in err, (code, err)
    assert len(err.strip().splitlines()) == 1, err

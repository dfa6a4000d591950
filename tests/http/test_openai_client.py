"""The official OpenAI client, unmodified, against both servers: what it reads is what was meant.

Answers are known beforehand (chain.py, fake_engine.h), so the tests compare whole texts and counts.
"""

import openai
import pytest
import server as servers
from conftest import EMOJI


def ask(server, text, **fields):
    return server.client().chat.completions.create(
        model=server.model, messages=[{"role": "user", "content": text}], **fields
    )


def test_chat(server):
    reply = ask(server, server.say("alphabet"), temperature=0)
    assert reply.object == "chat.completion" and reply.id.startswith("chatcmpl")
    assert reply.model == server.model
    choice = reply.choices[0]
    assert (choice.index, choice.finish_reason) == (0, "stop")
    assert choice.message.role == "assistant"
    assert choice.message.content == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    if server.chains:
        assert (
            reply.usage.completion_tokens == len(server.chains.ids["alphabet"]) + 1
        ), "the end counts"


def test_chat_stream_has_the_shape_clients_expect(server):
    chunks = list(ask(server, server.say("alphabet"), temperature=0, stream=True))
    assert {c.object for c in chunks} == {"chat.completion.chunk"}
    assert len({c.id for c in chunks}) == 1, "one id for the whole stream"
    first, last = chunks[0].choices[0], chunks[-1].choices[0]
    assert first.delta.role == "assistant" and not first.delta.content
    assert all(c.choices[0].delta.role is None for c in chunks[1:]), "the role comes once"
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert last.finish_reason == "stop" and not last.delta.content
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == server.text("alphabet")
    assert all(c.usage is None for c in chunks), "usage was not asked for"


def test_stream_manager_of_the_client(server):
    with server.client().chat.completions.stream(
        model=server.model,
        messages=[{"role": "user", "content": server.say("quote")}],
        temperature=0,
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "content.delta" in kinds and "content.done" in kinds
    assert final.choices[0].message.content == server.text("quote")


@pytest.mark.parametrize("name", ["alphabet", "emoji", "quote"])
@pytest.mark.parametrize("surface", ["chat", "completions"])
def test_stream_is_the_whole_answer(server, name, surface):
    asked = server.say(name) if surface == "chat" else server.prompt(name)
    choices, _ = servers.both_ways(server, asked, surface, temperature=0)
    assert choices[0]["text"] == server.text(name)


def test_include_usage_is_one_chunk_before_done(server):
    reply = server.chat(
        server.say("check"), temperature=0, stream=True, stream_options={"include_usage": True}
    )
    events = reply.events()
    assert [e["choices"] for e in events if e.get("usage")] == [
        []
    ], "usage in one chunk without choices"
    assert events[-1]["usage"], "and that chunk is the last"
    assert all("usage" in e for e in events), "null in the others, as OpenAI sends it"
    off = server.chat(
        server.say("check"), temperature=0, stream=True, stream_options={"include_usage": False}
    ).events()
    assert not any(e.get("usage") for e in off) and all(e["choices"] for e in off)


def test_counts_are_the_same_however_asked(server):
    """B07: whole, streamed, streamed without usage, and warm again."""
    runs = [servers.both_ways(server, server.say("alphabet"), temperature=0) for _ in range(2)]
    assert runs[0][0] == runs[1][0]
    (_, cold), (_, warm) = runs
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert cold[count] == warm[count], f"{count}: cold {cold}, warm {warm}"
    for usage in (cold, warm):
        assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]


def test_prompt_tokens_are_those_of_tokenize(server):
    prompt = server.prompt("check")
    count = server.post("/tokenize", {"content": prompt, "add_special": True}).json()["count"]
    assert server.completion(prompt, temperature=0).json()["usage"]["prompt_tokens"] == count


def test_completions(server):
    reply = server.client().completions.create(
        model=server.model, prompt=server.prompt("alphabet"), temperature=0
    )
    assert reply.object == "text_completion"
    assert reply.choices[0].text == server.text("alphabet")
    chunks = list(
        server.client().completions.create(
            model=server.model, prompt=server.prompt("alphabet"), temperature=0, stream=True
        )
    )
    assert "".join(c.choices[0].text for c in chunks) == server.text("alphabet")
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_list_of_prompts(server):
    names = ["check", "alphabet", "quote"]
    reply = server.client().completions.create(
        model=server.model, prompt=[server.prompt(n) for n in names], temperature=0
    )
    assert [(c.index, c.text) for c in reply.choices] == [
        (i, server.text(n)) for i, n in enumerate(names)
    ]
    alone = [server.completion(server.prompt(n), temperature=0).json()["usage"] for n in names]
    assert reply.usage.prompt_tokens == sum(u["prompt_tokens"] for u in alone)
    assert reply.usage.completion_tokens == sum(u["completion_tokens"] for u in alone)


def test_models(server):
    client = server.client()
    models = client.models.list().data
    assert [m.id for m in models] == [server.model]
    assert client.models.retrieve(server.model).id == server.model
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("no-such-model")
    assert error.value.code == "model_not_found"


@pytest.mark.parametrize("top", [0, 3, 20])
def test_chat_logprobs(server, top):
    reply = ask(server, server.say("emoji"), temperature=0, logprobs=True, top_logprobs=top)
    entries = reply.choices[0].logprobs.content
    assert b"".join(bytes(e.bytes) for e in entries) == EMOJI, "bytes join to the text"
    for entry in entries:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == top, entry
        values = [t.logprob for t in entry.top_logprobs]
        assert values == sorted(values, reverse=True), f"best first: {values}"
        if top:
            same = [t.logprob for t in entry.top_logprobs if t.bytes == entry.bytes]
            assert entry.logprob in same, f"the chosen token's own value is in the list: {entry}"
    choices, _ = servers.both_ways(
        server, server.say("emoji"), temperature=0, logprobs=True, top_logprobs=top
    )
    assert len(choices[0]["logprobs"]) == len(entries)


def test_logprobs_do_not_depend_on_temperature(server):
    """Stated convention: after bias, penalties and masks, before temperature and filters."""

    def values(temperature):
        reply = server.chat(
            server.say("check"), temperature=temperature, seed=3, logprobs=True, top_logprobs=2
        )
        return [e["logprob"] for e in reply.json()["choices"][0]["logprobs"]["content"]]

    assert values(0) == values(2)


def test_completions_logprobs(server):
    reply = server.client().completions.create(
        model=server.model, prompt=server.prompt("alphabet"), temperature=0, logprobs=2
    )
    got = reply.choices[0].logprobs
    assert "".join(got.tokens) == server.text("alphabet")
    assert (
        len(got.tokens) == len(got.token_logprobs) == len(got.top_logprobs) == len(got.text_offset)
    )
    offsets = [sum(map(len, got.tokens[:i])) for i in range(len(got.tokens))]
    assert got.text_offset == offsets
    assert all(token in top for token, top in zip(got.tokens, got.top_logprobs))


def test_no_logprobs_unless_asked(server):
    choice = ask(server, server.say("check"), temperature=0).choices[0]
    assert choice.logprobs is None


def test_stop_through_the_client(server):
    for stop in ("FG", ["zzz", "FG"]):
        choice = ask(server, server.say("alphabet"), temperature=0, stop=stop).choices[0]
        assert (choice.message.content, choice.finish_reason) == ("ABCDE", "stop")


def test_logit_bias_forces_and_bans(server):
    """On dice, as a chain's margin is above what a bias may be; the fake's letters will do."""
    word, token = (
        ("e", ord("e")) if server.kind == "fake" else (" two", server.chains.ids["dice"][1])
    )
    options = dict(temperature=1, seed=5, max_tokens=40, extra_body={"ignore_eos": True})
    free = ask(server, "[[chain dice]]", **options).choices[0].message.content
    assert word in free, f"bad luck with the seed: {free!r}"
    banned = ask(server, "[[chain dice]]", logit_bias={str(token): -100}, **options)
    assert word not in banned.choices[0].message.content
    forced = ask(server, "[[chain dice]]", logit_bias={str(token): 100}, **options)
    assert forced.choices[0].message.content == word * 40


def test_seed_comes_back_and_repeats(server):
    reply = ask(server, "[[chain dice]]", temperature=1, max_tokens=12)
    seed = reply.model_extra["seed"]
    assert isinstance(seed, int) and 0 <= seed < 2**64
    again = ask(server, "[[chain dice]]", temperature=1, max_tokens=12, extra_body={"seed": seed})
    assert again.choices[0].message.content == reply.choices[0].message.content
    first = next(iter(ask(server, "[[chain dice]]", temperature=1, max_tokens=2, stream=True)))
    assert isinstance(first.model_extra["seed"], int), "the first chunk of a stream has it"


def test_what_a_reply_was_can_be_sent_back(server):
    client = server.client()
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    first = client.chat.completions.create(
        model=server.model, messages=messages, temperature=0, max_tokens=5
    )
    messages += [first.choices[0].message, {"role": "user", "content": server.say("check")}]
    second = client.chat.completions.create(model=server.model, messages=messages, temperature=0)
    assert second.choices[0].message.content == server.text("check")


def test_content_parts(server):
    parts = [
        {"type": "text", "text": server.say("check")[:9]},
        {"type": "text", "text": server.say("check")[9:]},
    ]
    assert ask(server, parts, temperature=0).choices[0].message.content == server.text("check")
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    with pytest.raises(openai.BadRequestError) as error:
        ask(server, image)
    assert "messages[0].content[0]" in error.value.body["param"]


ERRORS = [
    ("unknown model", dict(model="no-such-model"), openai.NotFoundError, "model"),
    ("temperature", dict(temperature=7), openai.BadRequestError, "temperature"),
    ("n", dict(n=0), openai.BadRequestError, "n"),
    (
        "top_logprobs above 20",
        dict(logprobs=True, top_logprobs=21),
        openai.BadRequestError,
        "top_logprobs",
    ),
    ("top_logprobs alone", dict(top_logprobs=2), openai.BadRequestError, "top_logprobs"),
    ("unknown field", dict(extra_body={"temprature": 1}), openai.BadRequestError, "temprature"),
    ("no messages", dict(messages=[]), openai.BadRequestError, "messages"),
    (
        "role",
        dict(messages=[{"role": "narrator", "content": "x"}]),
        openai.BadRequestError,
        "messages[0].role",
    ),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name, fields, kind, param", ERRORS, ids=[e[0] for e in ERRORS])
def test_error_classes(server, name, fields, kind, param, stream):
    request = (
        dict(model=server.model, messages=[{"role": "user", "content": "x"}], stream=stream)
        | fields
    )
    with pytest.raises(kind) as error:
        server.client().chat.completions.create(**request)
    assert error.value.body["param"] == param, error.value.body
    assert error.value.body["message"]


def test_overloaded_is_a_429_with_retry_after(fake):
    with pytest.raises(openai.RateLimitError) as error:
        ask(fake, "[[refuse]]")
    assert int(error.value.response.headers["retry-after"]) > 0
    fake.check()


def test_failure_before_the_stream_and_within(fake):
    with pytest.raises(openai.InternalServerError):
        ask(fake, "[[say abcdef]] [[fail 2]]")
    got = []
    with pytest.raises(openai.APIError) as error:
        for chunk in ask(fake, "[[say abcdef]] [[fail 2]]", stream=True):
            got.append(chunk)
    assert got, "two tokens came before the failure"
    assert "failed, as asked" not in str(error.value), "internal messages stay in the log"
    fake.check()


def test_ignored_fields_are_listed(server):
    reply = server.chat(
        server.say("check"), temperature=0, user="u", store=False, metadata={"a": "b"}
    )
    assert reply.status == 200, reply
    listed = set(reply.headers["x-tenon-ignored-fields"].split(", "))
    assert listed == {"user", "store", "metadata"}


@pytest.mark.slow_model
@pytest.mark.timeout(600)
def test_default_model_knows_the_capital_of_france(logs):
    """`tenon serve` as a stranger starts it: no --model."""
    server = servers.start_real(logs / "default.log", None)
    try:
        stream = server.client(timeout=400).chat.completions.create(
            model=server.model,
            messages=[{"role": "user", "content": "What is the capital of France?"}],
            temperature=0,
            max_tokens=24,
            stream=True,
        )
        text = "".join(c.choices[0].delta.content or "" for c in stream)
        assert "Paris" in text, f"the answer was {text!r}"
    finally:
        server.stop()

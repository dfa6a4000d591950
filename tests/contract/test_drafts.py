"""The law of speculation: whatever proposes tokens, however many and how well, the reply is the one of
plain decoding: ids, text, logprob bits, finish reason and usage. The oracle is the same request alone on
a server without drafts. Every source of the registry, every kind of cache, every depth.
"""
import json
import re
import threading

import pytest

import block_drafters
import draft_models
import recipes
import server as servers

PROMPTS = ["The law of speculation.", "ab ab ab ab ab ab ab", "1, 2, 3, 4, 1, 2, 3, 4, 1, 2,"]
SETTINGS = {
    "greedy": dict(temperature=0),
    "warm": dict(temperature=0.8, top_p=0.9),
    "hot": dict(temperature=1.5, top_k=50, min_p=0.01),
    "penalties": dict(temperature=0.8, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.2,
                      logit_bias={"97": 2.5}),
    "stops": dict(temperature=1.5, stop=[" ba", " ki", " do", " su", "a", "e", "7"]),
}
TOKENS = 40
DEPTHS = (1, 2, 3, 5, 8)

# Cache kinds: a model whose layers are of the kind, and flags.
TARGETS = {
    "full": ("llama-untied-gqa", ()),
    "window": ("gemma3", ()),
    "shared": ("gemma4", ()),
    "experts": ("qwen3-moe", ()),
    "recurrent": ("qwen3.5", ()),
    "quantized8": ("llama-untied-gqa", ("--kv", "q8")),
    "quantized4": ("qwen3.5", ("--kv", "q4")),
}
# What a source is started with: good drafters are right mostly, bad ones hardly ever.
DRAFTERS = {
    "ngram": {"prompt": lambda make: "ngram", "long": lambda make: "ngram:max=5"},
    "model": {
        "itself": lambda make: f"model:{make.target}",
        "stranger": lambda make: f"model:{make.other('llama-untied-gqa')}",
        "windowed": lambda make: f"model:{make.other('gemma3')}",
        "recurrent": lambda make: f"model:{make.other('qwen3.5')}",
    },
    "mtp": {"own": lambda make: "mtp", "final_norm": lambda make: "mtp:hidden=final_norm"},
    "dspark": {
        "knowing": lambda make: f"dspark:{make.block('dspark', strength=2.0)}",
        "recurrent": lambda make: f"dspark:{make.block('dspark', strength=2.0, seqHead='rnn', variant='dflash')}",
        "doubting": lambda make: f"dspark:{make.block('dspark', strength=2.0)},min_confidence=0.6",
        "calibrated": lambda make: f"dspark:{make.block('dspark', strength=2.0, thresholds=[0, 0.5, 0.7, 0.5])}",
        "random": lambda make: f"dspark:{make.block('dspark', strength=0.0)}",
    },
}


class Make:
    """Checkpoints of one module's run, each made once."""

    def __init__(self, root):
        self.root, self.made, self.plain = root, {}, {}

    def folder(self, name, build):
        if name not in self.made:
            self.made[name] = build(self.root / name.replace(".", "-"))
        return self.made[name]

    def of_kind(self, kind):
        return self.folder(TARGETS[kind][0], lambda path: draft_models.target(path, TARGETS[kind][0]))

    def other(self, family):
        return self.folder(f"other {family}", lambda path: draft_models.target(path, family, peaked=0.5))

    def block(self, layout, **settings):
        """A drafter of blocks for the target last made, of this family; its first and last layers are tapped,
        and what comes after the final norm."""
        family, num_layers = self.block_target
        build = getattr(block_drafters, layout)
        return self.folder(f"{layout} {family} {settings}", lambda path: build(
            path.with_name(f"block{len(self.made)}"), recipes.FAMILIES[family], (num_layers, 0, num_layers - 1),
            **settings)[0])

    def shifting(self, scale):
        return self.folder(f"shifting {scale}", lambda path: draft_models.shifting_target(path, scale))


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    return Make(tmp_path_factory.mktemp("drafts"))


def ask(server, prompt, settings, seed, **more):
    reply = server.completion(prompt, max_tokens=TOKENS, seed=seed, ignore_eos=True, logprobs=3, **settings, **more)
    assert reply.status == 200, reply
    body = reply.json()
    choice = body["choices"][0]
    return choice["text"], choice["logprobs"], choice["finish_reason"], body["usage"]


def jobs():
    return [(prompt, name, seed) for name in SETTINGS for prompt in PROMPTS for seed in (3,)]


def plain(make, key, model, flags):
    """What each gets alone, without drafts."""
    if key not in make.plain:
        server = servers.start_real(make.root / "plain.log", model, "--max-batch", "1", "--draft", "none", *flags)
        try:
            make.plain[key] = {job: ask(server, job[0], SETTINGS[job[1]], job[2]) for job in jobs()}
        finally:
            server.stop()
    return make.plain[key]


def crowd(server, depths):
    """All jobs at once, eight at a time, each with a depth of its own."""
    todo, got = [(job, depths[i % len(depths)]) for i, job in enumerate(jobs())], {}

    def work(mine):
        for job, depth in mine:
            more = {} if depth is None else {"num_draft_tokens": depth}
            got[job] = ask(server, job[0], SETTINGS[job[1]], job[2], **more)

    threads = [threading.Thread(target=work, args=(todo[i::8],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(servers.REPLY_S)
    return got


def check(make, key, model, flags, draft, tmp_path):
    want = plain(make, key, model, flags)
    server = servers.start_real(tmp_path / "log", model, "--max-batch", "8", "--draft", draft, *flags)
    try:
        # Everybody with the same depth, then a mix of depths with rows that do not draft, then as it pays.
        for depths in ([DEPTHS[-1]], [*DEPTHS, 0], [None]):
            got = crowd(server, depths)
            assert got.keys() == want.keys()
            for job in want:
                assert got[job] == want[job], f"{draft}, depths {depths}, {job}"
        stats = server.stats()["draft"]
    finally:
        server.stop()
    assert stats["drafted"] > 0 and sum(stats["drafted_at"]) == stats["drafted"], stats
    assert sum(stats["accepted_at"]) == stats["accepted"] <= stats["drafted"], stats
    return stats


def sources():
    code, _, err = servers.run_tenon("logits", "--ids", "1", "--out", "/dev/null", "--draft", "?")
    names = re.search(r"this build has (.*)", err)[1].split(", ")
    assert code != 0 and names[0] == "none"
    return names[1:]


def test_every_source_of_the_registry_is_here():
    assert sorted(sources()) == sorted(DRAFTERS)


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("drafter", DRAFTERS["ngram"])
def test_ngram(kind, drafter, make, tmp_path):
    check(make, kind, make.of_kind(kind), TARGETS[kind][1], DRAFTERS["ngram"][drafter](make), tmp_path)


@pytest.mark.parametrize("kind", TARGETS)
def test_model_that_is_the_target(kind, make, tmp_path):
    """It draws what the target draws, so every draft is accepted, at every temperature."""
    make.target = make.of_kind(kind)
    stats = check(make, kind, make.target, TARGETS[kind][1], DRAFTERS["model"]["itself"](make), tmp_path)
    if not TARGETS[kind][1]:  # quantized keys and values are the target's alone
        # A stop string ends a reply whose drafts are still on their way.
        assert stats["accepted"] == stats["drafted"], stats


@pytest.mark.parametrize("drafter", ["stranger", "windowed", "recurrent"])
@pytest.mark.parametrize("kind", ["full", "window", "recurrent"])
def test_model_of_another_mind(kind, drafter, make, tmp_path):
    stats = check(make, kind, make.of_kind(kind), TARGETS[kind][1], DRAFTERS["model"][drafter](make), tmp_path)
    assert stats["accepted"] < stats["drafted"], stats


def test_a_recurrent_drafter_goes_on_after_rejections(make, tmp_path):
    """Its state cannot go back into a chain of steps: it goes back to the chain's beginning, and drafts again."""
    target = make.of_kind("recurrent")
    draft = make.folder("recurrent q4", lambda path: draft_models.target(path, "qwen3.5", "q4-f32"))
    server = servers.start_real(tmp_path / "log", target, "--draft", f"model:{draft}", "--draft-depth", "3")
    try:
        ask(server, PROMPTS[0], SETTINGS["greedy"], 1)
        stats = server.stats()["draft"]
    finally:
        server.stop()
    assert "without drafts" not in server.stderr()
    # One token a round and what was accepted: nothing was drawn outside a round but the first.
    assert TOKENS - 2 <= stats["rounds"] + stats["accepted"] + 1 <= TOKENS, stats
    assert 0 < stats["accepted"] < stats["drafted"], stats


@pytest.mark.parametrize("factor", [2, 7, 65, -1])
def test_a_head_whose_rotation_is_wider_than_its_heads_is_refused(factor, make, tmp_path):
    head = tmp_path / "head"
    draft_models.shifting_target(tmp_path / "model", 0.35, head)
    config = json.loads((head / "config.json").read_text())
    config["text_config"]["rope_parameters"]["partial_rotary_factor"] = factor
    (head / "config.json").write_text(json.dumps(config))
    code, _, err = servers.run_tenon("generate", "--model", make.shifting(0.35), "--raw", "--draft", f"mtp:{head}", "x")
    assert code == 1 and "partial_rotary_factor" in err, err


@pytest.mark.parametrize("scale", [0.35, 0.55])
@pytest.mark.parametrize("drafter", DRAFTERS["mtp"])
def test_mtp(scale, drafter, make, tmp_path):
    stats = check(make, f"mtp {scale}", make.shifting(scale), (), DRAFTERS["mtp"][drafter](make), tmp_path)
    assert stats["accepted"] > stats["drafted"] // 10, stats


def test_mtp_from_a_folder_of_its_own(make, tmp_path):
    head = tmp_path / "head"
    model = draft_models.shifting_target(tmp_path / "model", 0.8, head)
    separate = check(make, "mtp apart", model, (), f"mtp:{head}", tmp_path)
    assert separate["accepted"] > 0


BLOCK_SOURCES = ("dspark",)
BLOCK_DRAFTERS = [(source, drafter) for source in BLOCK_SOURCES for drafter in DRAFTERS[source]]


@pytest.mark.parametrize("source,drafter", BLOCK_DRAFTERS)
def test_drafters_of_blocks(source, drafter, make, tmp_path):
    make.block_target = "qwen3.5", recipes.FAMILIES["qwen3.5"]["num_hidden_layers"]
    stats = check(make, "mtp 0.55", make.shifting(0.55), (), DRAFTERS[source][drafter](make), tmp_path)
    if drafter == "random":
        assert stats["accepted"] < stats["drafted"] // 10, stats
    else:
        assert stats["accepted"] > stats["drafted"] // 5, stats
    if drafter in ("knowing", "random"):  # deeper than a block goes nobody drafts
        assert len(stats["drafted_at"]) == block_drafters.GAMMA, stats


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("source", BLOCK_SOURCES)
def test_drafters_of_blocks_on_every_kind(source, kind, make, tmp_path):
    """What they say is mostly wrong here; contexts must follow all the same."""
    family = TARGETS[kind][0]
    make.block_target = family, recipes.FAMILIES[family]["num_hidden_layers"]
    model = make.of_kind(kind)
    check(make, kind, model, TARGETS[kind][1], DRAFTERS[source]["random"](make), tmp_path)


GONE_WRONG = {"dspark": ["W_c", "ctx_norm", "bb.1.k", "out_proj", "markov.w1", "markov.w2", "conf.b"]}


@pytest.mark.parametrize("what", [float("nan"), float("inf"), 3e38])
@pytest.mark.parametrize("source,tensor", [(source, name) for source in GONE_WRONG for name in GONE_WRONG[source]])
def test_drafters_of_blocks_gone_wrong(source, tensor, what, make, tmp_path):
    """Numbers that are none cost drafts and nothing else."""
    family = recipes.FAMILIES["qwen3.5"]
    draft, *_ = getattr(block_drafters, source)(tmp_path / "drafter", family, (0, 3), strength=2.0,
                                                edit=lambda _, tensors: tensors[tensor].fill(what))
    want = plain(make, "mtp 0.55", make.shifting(0.55), ())
    server = servers.start_real(tmp_path / "log", make.shifting(0.55), "--draft", f"{source}:{draft},min_confidence=0.5")
    try:
        for settings, seed in (("greedy", 3), ("hot", 3)):
            got = ask(server, PROMPTS[0], SETTINGS[settings], seed, num_draft_tokens=3)
            assert got == want[(PROMPTS[0], settings, seed)], (tensor, what, settings)
        assert server.stats()["draft"]["drafted"] > 0
    finally:
        server.stop()


def test_auto_takes_the_head_that_comes_along(make, tmp_path):
    server = servers.start_real(tmp_path / "log", make.shifting(0.35), "--draft-depth", "2")
    try:
        assert server.stats()["models"][0]["draft"] == "mtp"
        ask(server, PROMPTS[0], SETTINGS["greedy"], 1)
        stats = server.stats()["draft"]
        assert stats["accepted"] > 0 and len(stats["drafted_at"]) == 2, stats
    finally:
        server.stop()


def test_stops_and_lengths_are_met(make):
    """Otherwise the settings above would not show what they are for."""
    ends = [end for kind in TARGETS for job, (_, _, end, _) in
            plain(make, kind, make.of_kind(kind), TARGETS[kind][1]).items() if job[1] == "stops"]
    assert "stop" in ends


@pytest.mark.parametrize("draft,word", [
    ("model:/nowhere/at/all", "/nowhere/at/all"), ("mtp", "mtp.*"), ("telepathy", "none, ngram"),
    ("ngram:max=0", "1 to 8"), ("model", "model:PATH")])
def test_what_does_not_fit_is_refused_at_load(draft, word, make, tmp_path):
    code, _, err = servers.run_tenon("generate", "--model", make.of_kind("full"), "--raw", "--draft", draft, "x")
    assert code in (1, 2) and word in err and len(err.strip().splitlines()) == 1, err


def test_a_model_of_other_words_is_refused(make, tmp_path):
    code, _, err = servers.run_tenon("generate", "--model", make.of_kind("full"), "--raw", "--draft",
                                     f"model:{servers.DEFAULT_MODEL}", "x")
    assert code == 1 and "tokenizer is another one" in err, err


def swap_two_words(vocabulary):
    words = sorted(vocabulary, key=vocabulary.get)
    vocabulary[words[300]], vocabulary[words[301]] = vocabulary[words[301]], vocabulary[words[300]]


def respell_a_word(vocabulary):
    last = max((word for word in vocabulary if len(word) == 3), key=vocabulary.get)
    vocabulary[last + "q"] = vocabulary.pop(last)


@pytest.mark.parametrize("change", [swap_two_words, respell_a_word])
def test_a_model_of_nearly_the_same_words_is_refused(change, make, tmp_path):
    draft = draft_models.target(tmp_path / "draft", "llama-untied-gqa")
    words = json.loads((draft / "tokenizer.json").read_text())
    change(words["model"]["vocab"])
    (draft / "tokenizer.json").write_text(json.dumps(words))
    code, _, err = servers.run_tenon("generate", "--model", make.of_kind("full"), "--raw", "--draft",
                                     f"model:{draft}", "x")
    assert code == 1 and "tokenizer is another one" in err, err


def test_a_padded_head_is_no_obstacle(make, tmp_path):
    """Logits past the words are as if they were not there: the replies are those of the head without them."""
    want = plain(make, "full", make.of_kind("full"), ())
    target = draft_models.target(tmp_path / "target", "llama-untied-gqa")
    draft = draft_models.target(tmp_path / "draft", "llama-untied-gqa")
    for folder, rows in ((target, 576), (draft, 544)):
        draft_models.pad_vocabulary(folder, rows)
    stats = check(make, "padded", target, (), f"model:{draft}", tmp_path)
    assert plain(make, "padded", target, ()) == want
    assert stats["accepted"] == stats["drafted"], stats


def test_a_head_of_another_width_is_refused(make, tmp_path):
    head = tmp_path / "head"
    narrow = dict(recipes.FAMILIES["qwen3.5"], hidden_size=64)
    family = dict(recipes.FAMILIES)
    recipes.FAMILIES["qwen3.5"] = narrow
    try:
        draft_models.shifting_target(tmp_path / "narrow", 0.8, head)
    finally:
        recipes.FAMILIES.update(family)
    code, _, err = servers.run_tenon("generate", "--model", make.shifting(0.35), "--raw", "--draft", f"mtp:{head}", "x")
    assert code == 1 and "width 64" in err and "128" in err, err

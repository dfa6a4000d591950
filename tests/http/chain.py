"""Checkpoints whose words are known beforehand (fixture F2, and a random one beside it).

A chain model is a one-layer llama with attention and MLP weights of zero, a random +-1 embedding
and an untied head in which row pi(t) is the embedding of t. After token t it says pi(t), whatever
came before, with a margin no sampling temperature bridges. Each token has one successor, so every
piece of text may be used once in a model; several chains live in one model, each entered through
its own control token <|go:NAME|>.

Ways in:
- chat: a user message that holds [[chain NAME]] makes the template end the prompt with <|go:NAME|>;
- completions: end the prompt with <|go:NAME|>;
- without either, the chain called "plain" hooks onto the newline after "assistant".
The chain "dice" is the exception to certainty: after any of its tokens all of them are about as
likely, so it shows seeds, temperatures and the draw.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HIDDEN = 256
# Dimensions in which tokens that share a successor are alike, as a sum over many would drown
# the others.
DICE_AT, END_AT = slice(0, 64), slice(64, 128)
END = "<|im_end|>"
SPECIALS = ["<|pad|>", "<|im_start|>", END, "<|endoftext|>", "<|stop_a|>", "<|stop_b|>"]
DICE = [
    " one",
    " two",
    " three",
    " four",
    " five",
    " six",
    " seven",
    " eight",
    " nine",
    " ten",
    " red",
    " green",
    " blue",
    " white",
    " black",
    " grey",
]

TEMPLATE = (
    "{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{%- if message['content'] is string %}{{ message['content'] }}{% endif %}"
    "{%- if not (loop.last and not add_generation_prompt and message['role'] == 'assistant') %}"
    "{{ '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "GOES"
    "{%- endif %}"
)


@dataclass(frozen=True)
class Special:
    """A control token inside a chain; it has no text."""

    spelling: str


@dataclass(frozen=True)
class Added:
    """An added token that is not special: its text is its content, outside byte-level spelling."""

    content: str


@dataclass
class ChainModel:
    folder: Path
    window: int
    vocab_size: int
    ids: dict = field(default_factory=dict)  # chain name -> ids, without the end
    texts: dict = field(default_factory=dict)  # chain name -> bytes it says
    ends: dict = field(default_factory=dict)  # chain name -> does it end by itself
    specials: dict = field(default_factory=dict)


def byte_letters():
    """Byte-level BPE's spelling of each byte, as in GPT-2."""
    plain = [b for b in range(256) if 32 < b < 127 or 160 < b < 256 and b != 173]
    spelled, other = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in spelled:
            spelled[b] = chr(256 + other)
            other += 1
    return spelled


LETTERS = byte_letters()


def as_bytes(piece):
    if isinstance(piece, bytes):
        return piece
    if isinstance(piece, Special):
        return b""
    return (piece.content if isinstance(piece, Added) else piece).encode()


class Vocabulary:
    """Ids: 0-255 the bytes, then pieces of more bytes, then added tokens."""

    def __init__(self):
        self.pieces = {LETTERS[b]: b for b in range(256)}
        self.added = []  # (content, special)

    def add_piece(self, raw):
        return self.pieces.setdefault("".join(LETTERS[b] for b in raw), len(self.pieces))

    def add_token(self, content, special):
        if (content, special) not in self.added:
            self.added.append((content, special))

    def id_of(self, piece):
        if isinstance(piece, (Special, Added)):
            names = [content for content, _ in self.added]
            return len(self.pieces) + names.index(getattr(piece, "spelling", None) or piece.content)
        return self.pieces["".join(LETTERS[b] for b in as_bytes(piece))]

    def __len__(self):
        return len(self.pieces) + len(self.added)

    def save(self, path):
        tokenizer = Tokenizer(models.BPE(vocab=self.pieces, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        for content, special in self.added:  # one by one, so that ids follow the order
            token = AddedToken(content, special=special, normalized=False)
            tokenizer.add_special_tokens([token]) if special else tokenizer.add_tokens([token])
        for content, special in self.added:
            kind = Special(content) if special else Added(content)
            assert tokenizer.token_to_id(content) == self.id_of(kind), f"id of {content} moved"
        tokenizer.save(str(path))


def build_vocabulary(chains, dice):
    vocabulary = Vocabulary()
    pieces = [piece for chain in chains.values() for piece in chain]
    for piece in pieces + (DICE if dice else []):
        if not isinstance(piece, (Special, Added)) and len(as_bytes(piece)) > 1:
            vocabulary.add_piece(as_bytes(piece))
    for spelling in SPECIALS:
        vocabulary.add_token(spelling, True)
    for name in [*chains, *(["dice"] if dice else [])]:
        vocabulary.add_token(f"<|go:{name}|>", True)
    for piece in pieces:
        if isinstance(piece, Added):
            vocabulary.add_token(piece.content, False)
    return vocabulary


def successors(chains, endless, vocabulary):
    """pi as a dict from id to id; a piece that would need two successors is an error."""
    follow = {}

    def link(a, b, name):
        assert (
            a not in follow
        ), f"chain {name}: token {a} has a successor already; pieces must be unique"
        follow[a] = b

    for name, chain in chains.items():
        ids = [vocabulary.id_of(piece) for piece in chain]
        if name == "plain":
            link(vocabulary.id_of("\n"), ids[0], name)
        link(vocabulary.id_of(Special(f"<|go:{name}|>")), ids[0], name)
        for a, b in zip(ids, ids[1:]):
            link(a, b, name)
        link(ids[-1], ids[0] if name in endless else vocabulary.id_of(Special(END)), name)
    return follow


def weights(vocabulary, follow, dice):
    rng = np.random.default_rng(11)
    size, width = len(vocabulary), HIDDEN
    embed = rng.choice([-1.0, 1.0], (size, width)).astype(np.float32)
    dice_ids = [vocabulary.id_of(word) for word in DICE] if dice else []
    assert not set(dice_ids) & set(follow), "a chain uses a word of the dice"
    end = vocabulary.id_of(Special(END))
    pattern = rng.choice([-1.0, 1.0], 64).astype(np.float32)
    embed[dice_ids + ([vocabulary.id_of(Special("<|go:dice|>"))] if dice else []), DICE_AT] = (
        pattern
    )
    embed[[before for before, after in follow.items() if after == end], END_AT] = pattern
    head = np.zeros((size, width), np.float32)
    for before, after in follow.items():
        if after != end:
            head[after] += embed[before]
    head[end, END_AT] = 2 * pattern
    head[dice_ids] = 0.03 * rng.standard_normal((len(dice_ids), width))  # not quite fair dice
    head[dice_ids, DICE_AT] = 2 * pattern
    zeros = {f"self_attn.{p}_proj": (width, width) for p in "qkvo"}
    zeros |= {
        "mlp.gate_proj": (64, width),
        "mlp.up_proj": (64, width),
        "mlp.down_proj": (width, 64),
    }
    out = {f"model.layers.0.{k}.weight": np.zeros(shape, np.float32) for k, shape in zeros.items()}
    for norm in (
        "model.layers.0.input_layernorm",
        "model.layers.0.post_attention_layernorm",
        "model.norm",
    ):
        out[f"{norm}.weight"] = np.ones(width, np.float32)
    return out | {"model.embed_tokens.weight": embed, "lm_head.weight": head}


def llama_config(vocab_size, window, **changes):
    config = dict(
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=window,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=False,
        vocab_size=vocab_size,
        torch_dtype="float32",
    )
    return config | changes


def put(folder, name, value):
    (folder / name).write_text(json.dumps(value, indent=1), encoding="utf-8")


def check_greedy(tensors, follow):
    """The head as numpy sees it: every successor is the argmax by a wide margin."""
    embed, head = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    logits = embed[list(follow)] @ head.T
    for row, (before, after) in zip(logits, follow.items()):
        rest = np.delete(row, after).max()
        assert (
            row.argmax() == after and row[after] - rest > 20
        ), f"after {before} comes {row.argmax()} and not {after} (margin {row[after] - rest:.1f})"


def make_chain_model(
    folder,
    pieces=("Hello", " there", "!"),
    end=True,
    context=4096,
    more=None,
    endless=(),
    dice=False,
    template=TEMPLATE,
    config_eos=END,
    generation_eos=None,
    tokenizer_eos=END,
    generation_config=None,
):
    """Writes the checkpoint; returns what it will say.

    pieces: the chain "plain". more: further chains by name. endless: names that begin again instead
    of ending (end=False: "plain" too). *_eos: a spelling, a list of them, None: nowhere.
    generation_config: further fields of generation_config.json, which is written when there is any.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    chains = {"plain": list(pieces)} | {name: list(chain) for name, chain in (more or {}).items()}
    endless = set(endless) | (set() if end else {"plain"})
    vocabulary = build_vocabulary(chains, dice)
    follow = successors(chains, endless, vocabulary)
    tensors = weights(vocabulary, follow, dice)
    check_greedy(tensors, follow)
    vocabulary.save(folder / "tokenizer.json")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    def eos_ids(eos):
        names = eos if isinstance(eos, list) else [eos]
        ids = [vocabulary.id_of(Special(name)) for name in names]
        return ids if isinstance(eos, list) else ids[0]

    config = llama_config(len(vocabulary), context)
    put(
        folder,
        "config.json",
        config | ({"eos_token_id": eos_ids(config_eos)} if config_eos else {}),
    )
    generation = dict(generation_config or {})
    if generation_eos:
        generation["eos_token_id"] = eos_ids(generation_eos)
    if generation:
        put(folder, "generation_config.json", generation)
    names = [*chains, *(["dice"] if dice else [])]
    goes = "".join(
        (
            "{%- if '[[chain NAME]]' in (messages[-1]['content'] or '') %}"
            "{{ '<|go:NAME|>' }}{% endif %}"
        ).replace("NAME", name)
        for name in names
    )
    tokenizer_config = dict(
        tokenizer_class="PreTrainedTokenizerFast",
        model_max_length=context,
        pad_token="<|pad|>",
        clean_up_tokenization_spaces=False,
        chat_template=template.replace("GOES", goes),
    )
    put(
        folder,
        "tokenizer_config.json",
        tokenizer_config | ({"eos_token": tokenizer_eos} if tokenizer_eos else {}),
    )
    model = ChainModel(folder, context, len(vocabulary))
    model.specials = {s: vocabulary.id_of(Special(s)) for s in SPECIALS}
    for name, chain in chains.items():
        model.ids[name] = [vocabulary.id_of(piece) for piece in chain]
        model.texts[name] = b"".join(as_bytes(piece) for piece in chain)
        model.ends[name] = name not in endless
    if dice:
        model.ids["dice"] = [vocabulary.id_of(word) for word in DICE]
    return model


def make_random_model(folder, context=512, layers=2, seed=5):
    """A llama with random weights over a byte vocabulary: what it says depends on everything
    before.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    vocabulary = build_vocabulary({}, False)
    for a in "abcdefghij":
        for b in "aeiouklmnrst":
            vocabulary.add_piece(f" {a}{b}".encode())
    vocabulary.save(folder / "tokenizer.json")
    size = len(vocabulary)

    def random(*shape, scale=1.0):
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    tensors = {
        "model.embed_tokens.weight": random(size, HIDDEN),
        "model.norm.weight": np.ones(HIDDEN, "f4"),
        "lm_head.weight": random(size, HIDDEN, scale=0.4),
    }
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for p in "qkvo":
            tensors[f"{at}self_attn.{p}_proj.weight"] = random(HIDDEN, HIDDEN, scale=1.5 / 16)
        tensors[f"{at}mlp.gate_proj.weight"] = random(64, HIDDEN, scale=1.5 / 16)
        tensors[f"{at}mlp.up_proj.weight"] = random(64, HIDDEN, scale=1.5 / 16)
        tensors[f"{at}mlp.down_proj.weight"] = random(HIDDEN, 64, scale=1.5 / 8)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{norm}.weight"] = np.ones(HIDDEN, "f4")
    # Only tokens that print are ever likely, so texts can be compared by eye.
    for token in range(256):
        tensors["lm_head.weight"][token] *= 0.01
    for token in range(size - len(vocabulary.added), size):
        tensors["lm_head.weight"][token] = 0
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    put(folder, "config.json", llama_config(size, context, num_hidden_layers=layers))
    put(
        folder,
        "tokenizer_config.json",
        dict(
            tokenizer_class="PreTrainedTokenizerFast",
            eos_token=END,
            chat_template=TEMPLATE.replace("GOES", ""),
        ),
    )
    return folder

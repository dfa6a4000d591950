"""Drafters of blocks that are damaged, or belong to another target, are refused at load in one line that names
the folder's file and the field or tensor."""
import numpy as np
import pytest

import block_drafters
import draft_models
import recipes
import server as servers

FAMILY = recipes.FAMILIES["llama-untied-gqa"]
TAPS = (0, 2)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return draft_models.target(tmp_path_factory.mktemp("target") / "model", "llama-untied-gqa")


def field(path, value):
    """Sets a field, or takes it away."""
    def change(document, _):
        *above, last = path.split(".")
        for key in above:
            document = document[key]
        if value is None:
            del document[last]
        else:
            document[last] = value
    return change


def tensor(name, change):
    def edit(_, tensors):
        value = change(tensors.pop(name))
        if value is not None:
            tensors[name] = value
    return edit


def gone(_):
    return None


def wider(value):
    return np.concatenate([value, value[..., :1]], -1)


def whole_numbers(value):
    return value.astype(np.int32)


def another(_, tensors):
    tensors["bb.0.extra"] = np.zeros(3, np.float32)


def rename(_, tensors):
    tensors["bb.00.q"] = tensors.pop("bb.0.q")


DSPARK = {
    "no-kind": (field("kind", None), ["kind", "dspark-drafter"]),
    "other-kind": (field("kind", "eagle"), ["kind", "eagle"]),
    "no-variant": (field("variant", None), ["variant", "train it again"]),
    "other-variant": (field("variant", "first"), ["variant", "first"]),
    "version": (field("version", 2), ["version 2"]),
    "no-version": (field("version", None), ["version"]),
    "no-config": (field("config", None), ["config"]),
    "config-list": (field("config", []), ["config"]),
    "no-dims": (field("dims", None), ["dims"]),
    "hidden": (field("dims.hiddenSize", 64), ["hiddenSize 64", "128"]),
    "vocab": (field("dims.vocabSize", 500), ["vocabSize 500", "512"]),
    "eps": (field("dims.eps", -1), ["eps"]),
    "eps-text": (field("dims.eps", "small"), ["eps"]),
    "gamma-0": (field("config.gamma", 0), ["gamma"]),
    "gamma-many": (field("config.gamma", 10**6), ["gamma"]),
    "gamma-more": (field("config.gamma", 6), ["model.safetensors", "mask_emb"]),
    "width": (field("config.dDraft", 52), ["model.safetensors", "52"]),
    "heads": (field("config.nHeads", 5), ["dDraft 48", "nHeads 5"]),
    "heads-0": (field("config.nHeads", 0), ["nHeads"]),
    "layers": (field("config.nLayers", 3), ["model.safetensors", "bb.2."]),
    "fewer-layers": (field("config.nLayers", 1), ["model.safetensors", "bb.1."]),
    "rank": (field("config.markovRank", 31), ["model.safetensors", "markov.w1"]),
    "ffn": (field("config.ffMult", 3), ["model.safetensors", "bb.0.gate"]),
    "ffn-huge": (field("config.ffMult", 2**40), ["ffMult"]),
    "head": (field("config.seqHead", "lstm"), ["seqHead", "lstm"]),
    "head-without-tensors": (field("config.seqHead", "rnn"), ["model.safetensors", "rnn.wH"]),
    "no-taps": (field("config.tapLayers", None), ["tapLayers"]),
    "empty-taps": (field("config.tapLayers", []), ["tapLayers"]),
    "taps-past": (field("config.tapLayers", [0, 4]), ["tapLayers", "4", "0 to 3"]),
    "taps-before": (field("config.tapLayers", [-1, 2]), ["tapLayers", "-1"]),
    "taps-half": (field("config.tapLayers", [0.5, 2]), ["tapLayers", "0.5"]),
    "taps-huge": (field("config.tapLayers", [0, 2**63]), ["tapLayers"]),
    "more-taps": (field("config.tapLayers", [0, 1, 2]), ["model.safetensors", "W_c"]),
    "sts-short": (field("config.sts", dict(thresholds=[0.5])), ["sts.thresholds", "4"]),
    "sts-empty": (field("config.sts", {}), ["sts.thresholds"]),
    "sts-past": (field("config.sts", dict(thresholds=[0, 1.5, 0, 0])), ["sts.thresholds", "1.5"]),
    "sts-text": (field("config.sts", dict(thresholds=[0, "x", 0, 0])), ["sts.thresholds"]),
    "missing": (tensor("bb.1.v", gone), ["model.safetensors", "bb.1.v"]),
    "missing-confidence": (tensor("conf.w", gone), ["model.safetensors", "conf.w"]),
    "missing-context": (tensor("W_c", gone), ["model.safetensors", "W_c"]),
    "wider": (tensor("out_proj", wider), ["model.safetensors", "out_proj"]),
    "wider-norm": (tensor("ctx_norm", wider), ["model.safetensors", "ctx_norm"]),
    "wider-table": (tensor("markov.w2", wider), ["model.safetensors", "markov.w2"]),
    "integers": (tensor("tok_proj", whole_numbers), ["model.safetensors", "tok_proj"]),
    "integer-norm": (tensor("out_norm", whole_numbers), ["model.safetensors", "out_norm"]),
    "another": (another, ["model.safetensors", "bb.0.extra"]),
    "renamed": (rename, ["model.safetensors", "bb.0.q"]),
}
LAYOUTS = {"dspark": ("dspark.json", DSPARK)}
CASES = [(layout, name) for layout, (_, cases) in LAYOUTS.items() for name in cases]


def refusal(target, source, folder):
    code, _, err = servers.run_tenon("generate", "--model", target, "--raw", "--draft", f"{source}:{folder}", "x")
    assert code == 1 and len(err.strip().splitlines()) == 1 and str(folder) in err, err
    return err


@pytest.mark.parametrize("layout,name", CASES)
def test_what_does_not_fit_is_named(layout, name, target, tmp_path):
    config_file, cases = LAYOUTS[layout]
    edit, words = cases[name]
    getattr(block_drafters, layout)(tmp_path / "drafter", FAMILY, TAPS, edit=edit)
    err = refusal(target, layout, tmp_path / "drafter")
    if "model.safetensors" not in words:
        words = [config_file, *words]
    assert all(word in err for word in words), err


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_fits_is_taken(layout, target, tmp_path):
    """Otherwise the refusals above might be for another reason."""
    getattr(block_drafters, layout)(tmp_path / "drafter", FAMILY, TAPS)
    code, out, err = servers.run_tenon("generate", "--model", target, "--raw", "--max-tokens", "4", "--draft",
                                       f"{layout}:{tmp_path / 'drafter'}", "x")
    assert code == 0 and out, err


@pytest.mark.parametrize("layout", LAYOUTS)
def test_broken_files_are_named(layout, target, tmp_path):
    config_file = LAYOUTS[layout][0]
    folder = tmp_path / "drafter"
    getattr(block_drafters, layout)(folder, FAMILY, TAPS)
    whole = (folder / config_file).read_text()
    for text in ("", "[]", whole[:-1], "null"):
        (folder / config_file).write_text(text)
        assert config_file in refusal(target, layout, folder)
    (folder / config_file).unlink()
    assert config_file in refusal(target, layout, folder)
    (folder / config_file).write_text(whole)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:len(weights) // 2])
    assert "model.safetensors" in refusal(target, layout, folder)
    (folder / "model.safetensors").unlink()
    assert "safetensors" in refusal(target, layout, folder)


def test_a_folder_of_another_kind(target, tmp_path):
    """A model is no drafter, whichever way it is named."""
    for layout, (config_file, _) in LAYOUTS.items():
        assert config_file in refusal(target, layout, target)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("option", ["min_confidence=1.01", "min_confidence=-1", "min_confidence=nan", "min_confidence="])
def test_options_out_of_range(layout, option, target, tmp_path):
    code, _, err = servers.run_tenon("generate", "--model", target, "--raw", "--draft", f"{layout}:/x,{option}", "x")
    assert code in (1, 2) and "from 0 to 1" in err and len(err.strip().splitlines()) == 1, err



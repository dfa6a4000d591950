"""Whole models, of which each test damages a copy, and the runner."""

import shutil

import chain
import pytest
from damaged import (
    Safetensors,
    config,
    llama_gguf,
    weights,
)
from damaged_common import (
    FIRST,
    INDEX,
    Runner,
    SECOND,
    offsets,
)



@pytest.fixture(scope="session")
def vocabulary():
    return chain.build_vocabulary({}, False)


@pytest.fixture(scope="session")
def tensors(vocabulary):
    return Safetensors.of(weights(len(vocabulary)))


@pytest.fixture(scope="session")
def good(tmp_path_factory, vocabulary, tensors):
    """A whole model: what every damaged one begins as."""
    folder = tmp_path_factory.mktemp("good") / "model"
    folder.mkdir()
    vocabulary.save(folder / "tokenizer.json")
    end = vocabulary.id_of(chain.Special(chain.END))
    chain.put(folder, "config.json", config(len(vocabulary), eos_token_id=end))
    chain.put(
        folder,
        "tokenizer_config.json",
        {"eos_token": chain.END, "chat_template": chain.TEMPLATE.replace("GOES", "")},
    )
    chain.put(folder, "generation_config.json", {"eos_token_id": end, "temperature": 0.7})
    (folder / "model.safetensors").write_bytes(tensors.bytes())
    return folder


@pytest.fixture(scope="session")
def good_gguf(vocabulary):
    tokens = [*vocabulary.pieces, *(content for content, _ in vocabulary.added)]
    types = [1] * len(vocabulary.pieces) + [3] * len(vocabulary.added)
    return llama_gguf(tokens, types, vocabulary.id_of(chain.Special(chain.END)))


@pytest.fixture(scope="session")
def tenon(tmp_path_factory, good):
    runner = Runner(tmp_path_factory.mktemp("runs"), good)
    yield runner
    runner.launcher.close()


@pytest.fixture
def folder(tmp_path_factory, good):
    """A copy of the good model, for one test."""
    path = tmp_path_factory.mktemp("damaged") / "model"
    shutil.copytree(good, path)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def gguf_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "model.gguf"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def sharded(folder, tensors):
    """The good model in two shards and an index."""
    (folder / "model.safetensors").unlink()
    order = list(tensors.header)
    halves = {FIRST: order[: len(order) // 2], SECOND: order[len(order) // 2 :]}
    placed = {}
    for shard, held in halves.items():
        part = {
            n: (tensors.header[n]["shape"], tensors.data[slice(*offsets(tensors, n))]) for n in held
        }
        (folder / shard).write_bytes(Safetensors.of(part).bytes())
        placed |= dict.fromkeys(held, shard)
    chain.put(folder, INDEX, {"metadata": {"total_size": len(tensors.data)}, "weight_map": placed})
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Whole models of the families by the name of their recipe, each made once."""
    import recipes  # imports mlx-lm, which takes seconds

    made = {}

    def build(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("family") / "model"
            recipes.build(recipes.FAMILIES[name], "f32", made[name])
            (made[name] / INDEX).unlink()  # it would be the one to miss a tensor
        return made[name]

    return build


@pytest.fixture
def family(built, tmp_path_factory):
    """The same, copied for one test."""
    parent = tmp_path_factory.mktemp("damaged")
    yield lambda name: shutil.copytree(built(name), parent / "model", dirs_exist_ok=True)
    shutil.rmtree(parent)

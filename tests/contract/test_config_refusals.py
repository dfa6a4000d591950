"""What a config says is done or refused by name, never computed otherwise in silence (tenon info)."""
import json

import pytest

import chain
import recipes
import server as servers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "model"
    chain.make_random_model(path)
    return path


def info(folder, **changes):
    file = folder / "config.json"
    before = file.read_text()
    file.write_text(json.dumps(json.loads(before) | changes))
    try:
        return servers.run_tenon("info", "--json", "--model", str(folder))
    finally:
        file.write_text(before)


@pytest.mark.parametrize(
    "field, value",
    [
        ("hidden_act", "gelu"),
        ("partial_rotary_factor", 0.5),
        ("rope_scaling", "yarn"),
        ("rope_scaling", {"type": "llama3", "factor": 8, "low_freq_factor": 4}),
        ("rope_scaling", {"type": "yarn", "factor": 4, "beta_fast": 0}),
        ("rope_parameters", [1]),
        ("rope_theta", 0),
        ("rope_theta", -1),
        ("rms_norm_eps", -5),
        ("rms_norm_eps", 1e308),
        ("layer_types", ["sliding_attention"]),
    ],
)
def test_refused_by_name(folder, field, value):
    code, out, said = info(folder, **{field: value})
    assert code == 1, (field, value, out, said)
    assert field in said or "high_freq_factor" in said, said


def test_newer_spelling_of_rope_is_read(folder):
    theta = json.loads((folder / "config.json").read_text())["rope_theta"]
    assert info(folder, rope_theta=None, rope_parameters={"rope_theta": theta})[0] == 0
    assert info(folder, rope_theta=None, rope_parameters={"rope_theta": 0})[0] == 1


@pytest.mark.parametrize("family", ["glm4", "phi3", "qwen3.5"])
@pytest.mark.parametrize("factor", [1.5, 2, 65, 0, -0.5])
def test_a_rotation_wider_than_its_heads_is_refused(family, factor, tmp_path):
    folder = tmp_path / "model"
    recipes.build(recipes.FAMILIES[family], "f32", folder)
    config = json.loads((folder / "config.json").read_text())
    place = config["rope_parameters"] if "rope_parameters" in config else config
    place["partial_rotary_factor"] = factor
    (folder / "config.json").write_text(json.dumps(config))
    code, _, err = servers.run_tenon("info", "--model", folder)
    assert code == 1 and "partial_rotary_factor" in err and len(err.splitlines()) == 1, err

"""Configs: shipped, extended, overridden, and refused."""

from __future__ import annotations

import pytest

from genprm.config import Config, load_config, shipped_configs
from genprm.errors import ConfigError
from genprm.prompting import load_protocol


@pytest.mark.parametrize("name", shipped_configs())
def test_every_shipped_config_is_valid_and_names_a_protocol_and_mode_that_exist(name):
    config = load_config(name)
    load_protocol(config.verify.protocol).parts(config.verify.mode)


@pytest.mark.parametrize("name", [name for name in shipped_configs() if name != "scripted"])
def test_every_config_of_a_model_states_licence_and_size(name):
    card = load_config(name).card
    assert card.licence
    assert card.size


def test_an_override_sets_a_dotted_key_with_a_yaml_value():
    config = load_config("scripted", ["verify.early_stop=true", "scripted.latency_seconds=0.5", "verify.votes=4"])
    assert (config.verify.early_stop, config.scripted.latency_seconds, config.verify.votes) == (True, 0.5, 4)


def test_off_is_a_sandbox_kind_and_not_false():
    assert load_config("scripted", ['sandbox.kind="off"']).sandbox.kind == "off"
    assert load_config("scripted", ["sandbox.kind=off"]).sandbox.kind == "off"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("verify.vots=3", "did you mean 'votes'"),
        ("nonsense=1", "unknown setting 'nonsense'"),
        ("verify.votes=many", "verify.votes"),
        ("verify.votes=0", "verify.votes"),
        ("verify", "a.b=value"),
        ("model.x=1", "'model'"),
        ("sandbox.kind=docker", "sandbox.kind"),
        ("verify.aggregation=median", "verify.aggregation"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(override, said):
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")) as caught:
        load_config("scripted", [override])
    assert "\n" not in str(caught.value)


def test_a_file_extends_a_shipped_config_and_another_file(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: scripted\nverify: {votes: 3}\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\nverify: {seed: 7}\n")
    config = load_config(str(tmp_path / "b.yaml"))
    assert (config.backend.kind, config.verify.votes, config.verify.seed) == ("scripted", 3, 7)


@pytest.mark.parametrize(
    ("text", "said"),
    [("[1, 2]", "mapping"), ("a: [", "not YAML"), ("extends: 3", "extends"), ("verify: {votes: x}", "verify.votes")],
)
def test_a_wrong_file_is_one_line(tmp_path, text, said):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        load_config(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_file_an_unknown_name_and_a_circle_are_said(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(str(tmp_path / "none.yaml"))
    with pytest.raises(ConfigError, match="did you mean 'default'"):
        load_config("defualt")
    (tmp_path / "d.yaml").write_text("extends: d.yaml")
    with pytest.raises(ConfigError, match="extends itself"):
        load_config(str(tmp_path / "d.yaml"))


def test_the_digest_ignores_speed_and_sees_everything_else():
    base = Config()
    same = load_config("default", ["backend.max_batch=3", "backend.max_in_flight=2", "sandbox.workers=1"])
    assert load_config("default").digest() == same.digest()
    assert load_config("default", ["verify.seed=1"]).digest() != same.digest()
    assert base.digest() == Config().digest()

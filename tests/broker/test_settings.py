"""Settings of a broker: where they come from, what is refused, and that the documentation knows them."""

import re
from pathlib import Path

import pytest

from penstock.config import BrokerConfig, load_broker_config, load_config
from penstock.config.broker import BROKER_ALIASES, BROKER_TYPES
from penstock.errors import ConfigError

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "config.md"


def test_a_brokers_file_holds_its_own_settings_and_the_stores(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=b\nlistenPort=20911\nflushDiskType=ASYNC_FLUSH\nhaListenPort=1\n")
    config, origins = load_broker_config(file, env={})
    assert (config.broker_name, config.listen_port, config.store.flush_disk_type) == ("b", 20911, "async")
    assert origins["broker_name"] == f"file {file}"


def test_one_toml_file_serves_the_broker_and_the_commands_on_its_store(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('brokerName = "b"\n[broker]\nlisten_port = 1\n[behaviour]\nflush_disk_type = "async"\n')
    config, _ = load_broker_config(file, env={"PENSTOCK_LISTEN_PORT": "2"}, flags={"cluster_name": "c"})
    assert (config.broker_name, config.listen_port, config.cluster_name) == ("b", 2, "c")
    assert load_config(file, env={})[0].flush_disk_type == "async"


@pytest.mark.parametrize(
    "wrong",
    [
        {"broker_name": "a/b"},
        {"cluster_name": ""},
        {"listen_host": "localhost"},
        {"listen_port": 70000},
        {"listen_port": True},
        {"namesrv_addr": "nowhere"},
        {"store_path": ""},
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(**wrong)  # type: ignore[arg-type]
    assert refused.value.key == next(iter(wrong))


def test_every_setting_is_documented_with_its_default_and_alias() -> None:
    section = DOCUMENT.read_text().split("\n## Broker\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.*?) \|", section, re.MULTILINE)
    documented = {name: (default, alias.strip("` ")) for name, default, alias in rows}
    assert set(documented) == set(BROKER_TYPES)
    aliases = {ours: theirs for theirs, ours in BROKER_ALIASES.items()}
    config = BrokerConfig()
    for name, (default, alias) in documented.items():
        value = getattr(config, name)
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        assert default == (f"`{shown}`" if shown else "empty"), name
        assert alias == aliases.get(name, ""), name

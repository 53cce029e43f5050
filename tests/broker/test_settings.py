"""Settings of a broker: where they come from, what is refused, and that the documentation knows them."""

import re
from pathlib import Path

import pytest

from penstock.config import BrokerConfig, load_broker_config, load_config
from penstock.config.broker import BROKER_ALIASES, BROKER_TYPES
from penstock.config.foreignkeys import FOREIGN_KEYS
from penstock.config.load import BROKER, log
from penstock.errors import ConfigError

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "config.md"


def test_a_brokers_file_holds_its_own_settings_and_the_stores(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=b\nlistenPort=20911\nflushDiskType=ASYNC_FLUSH\nhaListenPort=1\n")
    config, origins = load_broker_config(file, env={})
    assert (config.broker_name, config.listen_port, config.store.flush_disk_type) == ("b", 20911, "async")
    assert origins["broker_name"] == f"file {file}"


def test_keys_that_do_nothing_here_are_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, str]] = []
    for level in ("info", "warning"):
        monkeypatch.setattr(log, level, lambda text, *more, level=level: said.append((level, text % more)))
    file = tmp_path / "broker.conf"
    file.write_text(
        "brokerName=b\nhaListenPort=1\nbrokerRole=ASYNC_MASTER\nlistenPrt=1\nsendMesageThreadPoolNums=4\nxyzzy=1\n"
    )
    config, _ = load_broker_config(file, env={})
    assert config.listen_port == BrokerConfig().listen_port
    assert said == [
        ("info", f"{file}: without effect here: haListenPort, brokerRole"),
        (
            "warning",
            f"{file}: no such setting, passed over: listenPrt (did you mean listenPort?),"
            " sendMesageThreadPoolNums (did you mean sendMessageThreadPoolNums?), xyzzy",
        ),
    ]
    said.clear()
    load_config(file, env={})  # a command on the store: the file is the broker's, and most of it not for us
    assert said == []


def test_no_key_is_both_a_setting_and_without_effect() -> None:
    assert not FOREIGN_KEYS & (set(BROKER.types) | set(BROKER.aliases))
    assert {"brokerRole", "haListenPort", "dLegerGroup", "sendMessageThreadPoolNums"} <= FOREIGN_KEYS


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

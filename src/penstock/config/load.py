"""Settings from everywhere, with one precedence rule and the origin of each value.

flags > environment (``PENSTOCK_<NAME>``) > file > defaults. The file is TOML, or a RocketMQ ``broker.conf``.
Every source takes our names and RocketMQ's. ``PENSTOCK_CONFIG`` names the file when the caller does not.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.config.aliases import ALIASES, translate_value
from penstock.config.broker import BROKER_ALIASES, BROKER_TYPES, BrokerConfig, check_broker
from penstock.config.foreignkeys import FOREIGN_KEYS
from penstock.config.properties import parse_properties
from penstock.config.schema import TYPES, StoreConfig, check, group_of
from penstock.errors import ConfigError

log = logging.getLogger("penstock.config")

ENV_PREFIX = "PENSTOCK_"
_GROUPS = ("behaviour", "performance", "broker")
_MAX_FILE_SIZE = 1 << 20
_SIZE_SUFFIXES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Schema:
    """Which settings a source may hold, and how each is checked."""

    types: Mapping[str, type]
    aliases: Mapping[str, str]

    def field_of(self, key: str) -> str:
        """Our name of a key; a key that is no alias comes back as it is."""
        return self.aliases.get(key, key)

    def group_of(self, field: str) -> str:
        """The table of a TOML file that a setting may stand in."""
        return group_of(field) if field in TYPES else "broker"

    def check(self, field: str, value: Any, *, source: str) -> Any:
        return (check if field in TYPES else check_broker)(field, value, source=source)


STORE = Schema(TYPES, ALIASES)
BROKER = Schema({**TYPES, **BROKER_TYPES}, {**ALIASES, **BROKER_ALIASES})


def load_config(
    file: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
) -> tuple[StoreConfig, dict[str, str]]:
    """The settings and, for every field, where its value came from.

    A flag whose value is None counts as not given. A ``broker.conf`` is a whole broker's file: keys that are
    no setting of a store are passed over there. Elsewhere they are an error.
    """
    values, origins = _load(STORE, file, env, flags or {})
    return StoreConfig(**values), origins


def load_broker_config(
    file: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
) -> tuple[BrokerConfig, dict[str, str]]:
    """As ``load_config``, for a broker and its store: the same sources hold the settings of both.

    What a ``broker.conf`` says about things that this broker does not have is logged (info), and so are keys
    that RocketMQ does not know either (a warning, with a near one): somebody expects something of them.
    """
    values, origins = _load(BROKER, file, env, flags or {})
    store = StoreConfig(**{field: value for field, value in values.items() if field in TYPES})
    own = {field: value for field, value in values.items() if field in BROKER_TYPES}
    return BrokerConfig(store=store, **own), origins


def _load(
    schema: Schema, file: str | os.PathLike[str] | None, env: Mapping[str, str], flags: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    origins = dict.fromkeys(schema.types, "default")

    def take(source: Mapping[str, tuple[Any, str]]) -> None:
        for field, (value, origin) in source.items():
            values[field] = value
            origins[field] = origin

    chosen = file if file is not None else env.get(ENV_PREFIX + "CONFIG") or None
    if chosen is not None:
        take(_from_file(schema, Path(chosen)))
    take(_from_env(schema, env))
    take(_from_flags(schema, flags))
    return values, origins


def passed_over(keys: Iterable[str], schema: Schema = BROKER) -> tuple[list[str], dict[str, str]]:
    """Of the keys of a ``broker.conf`` that are no settings here: RocketMQ's own, and the rest with the name
    that is near each, or an empty one.
    """
    foreign, unknown = [], {}
    for key in keys:
        if schema.field_of(key) in schema.types:
            continue
        if key in FOREIGN_KEYS:
            foreign.append(key)
        else:
            near = _near(schema, key, *FOREIGN_KEYS)
            unknown[key] = near[0] if near else ""
    return foreign, unknown


def _tell_passed_over(path: Path, keys: Iterable[str]) -> None:
    foreign, unknown = passed_over(keys)
    if foreign:
        log.info("%s: without effect here: %s", path, ", ".join(foreign))
    if unknown:
        said = (f"{key} (did you mean {near}?)" if near else key for key, near in unknown.items())
        log.warning("%s: no such setting, passed over: %s", path, ", ".join(said))


def convert(field: str, value: Any, *, source: str, schema: Schema = STORE) -> Any:
    """A value as written by a person, as the field's type: ``"true"``, ``"64MiB"``, ``ASYNC_FLUSH``."""
    value = translate_value(field, value)
    expected = schema.types[field]
    if isinstance(value, str):
        text = value.strip()
        if expected is bool and text.lower() in _TRUE + _FALSE:
            value = text.lower() in _TRUE
        elif expected is int:
            value = _whole_number(text, value)
        else:
            value = text
    return schema.check(field, value, source=source)


def _whole_number(text: str, otherwise: str) -> int | str:
    found = re.fullmatch(r"(-?\d[\d_]{0,20}) ?(|KiB|MiB|GiB)", text, re.ASCII)
    return int(found[1].replace("_", "")) * _SIZE_SUFFIXES[found[2]] if found else otherwise


def _from_flags(schema: Schema, flags: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    given = {key: value for key, value in flags.items() if value is not None}
    return _collect(schema, given, {key: f"flag {key}" for key in given})


def _from_env(schema: Schema, env: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    # Other variables share the prefix (PENSTOCK_CONFIG, PENSTOCK_SETUP): look fields up, not variables.
    names = {field: ENV_PREFIX + field.upper() for field in schema.types}
    given = {field: env[name] for field, name in names.items() if name in env}
    return _collect(schema, given, {field: f"environment {names[field]}" for field in given})


def _from_file(schema: Schema, path: Path) -> dict[str, tuple[Any, str]]:
    if path.suffix == ".toml":
        given, places = _read_toml(path)
        # One file serves the broker and the commands on its store: these pass over what is the broker's.
        given = {
            key: value
            for key, value in given.items()
            if schema.field_of(key) in schema.types or BROKER.field_of(key) not in BROKER.types
        }
    else:
        written = _read_properties(path)
        if schema is BROKER:
            _tell_passed_over(path, written)
        given = {key: value for key, value in written.items() if schema.field_of(key) in schema.types}
        places = dict.fromkeys(given, str(path))
    return _collect(schema, given, {key: f"file {places[key]}" for key in given})


def _collect(
    schema: Schema, given: Mapping[str, Any], sources: Mapping[str, str]
) -> dict[str, tuple[Any, str]]:
    """Names to fields, values to types. Two names of one field in one source are refused: which was meant?"""
    found: dict[str, tuple[Any, str]] = {}
    named: dict[str, str] = {}
    for key, value in given.items():
        field, source = schema.field_of(key), sources[key]
        if field not in schema.types:
            raise _unknown(schema, key, source)
        if field in found:
            raise ConfigError(
                f"{named[field]} and {key} (from {source}) are one setting", key=key, source=source
            )
        named[field] = key
        found[field] = (convert(field, value, source=source, schema=schema), source)
    return found


def _unknown(schema: Schema, key: str, source: str) -> ConfigError:
    near = _near(schema, key)
    hint = f"did you mean {near[0]}?" if near else "`penstock config show` lists them"
    return ConfigError(f"{key} (from {source}): no such setting", key=key, source=source, hint=hint)


def _near(schema: Schema, key: str, *more: str) -> list[str]:
    return difflib.get_close_matches(key, [*schema.types, *schema.aliases, *more], n=1)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_FILE_SIZE + 1)
    except OSError as error:
        raise ConfigError(
            f"can't read the config file: {error.strerror}", file=path, source=str(path)
        ) from error
    if len(data) > _MAX_FILE_SIZE:
        raise ConfigError(f"a config file of more than {_MAX_FILE_SIZE} bytes", file=path, source=str(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("not UTF-8 text", file=path, source=str(path)) from error


def _read_properties(path: Path) -> dict[str, str]:
    try:
        return parse_properties(_read_text(path))
    except ValueError as error:
        raise ConfigError(str(error), file=path, source=str(path)) from error


def _read_toml(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings at the top level or in the table of their group, and the place of each."""
    try:
        document = tomllib.loads(_read_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"not TOML: {error}", file=path, source=str(path)) from error
    given: dict[str, Any] = {}
    places: dict[str, str] = {}
    for key, value in document.items():
        inner = value.items() if key in _GROUPS and isinstance(value, dict) else [(key, value)]
        for name, setting in inner:
            place = f"{path} [{key}]" if name != key else str(path)
            field = BROKER.field_of(name)
            if field in BROKER.types and key in _GROUPS and BROKER.group_of(field) != key:
                raise ConfigError(
                    f"{name} (from file {place}) belongs in [{BROKER.group_of(field)}]",
                    key=name,
                    source=place,
                )
            if name in given:
                raise ConfigError(f"{name} (from file {place}) is set twice", key=name, source=place)
            given[name] = setting
            places[name] = place
    return given, places

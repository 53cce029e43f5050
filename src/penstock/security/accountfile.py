"""The file of accounts: JSON of ours, or RocketMQ 4's ``plain_acl.yml`` where PyYAML can be imported."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import ConfigError
from penstock.security.account import Account, Accounts, Rights
from penstock.security.actions import Action, parse_actions
from penstock.security.addresses import AddressPatterns

log = logging.getLogger("penstock.security")

MAX_FILE_SIZE = 4 << 20
SHORTEST_SECRET = 8
_SHORTEST_PLAIN = 7  # RocketMQ's own bound for what stands in plain_acl.yml
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


class AccountEntry(
    msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"sources": "from"}
):
    """One account as the file has it."""

    name: str
    secret: str
    admin: bool = False
    enabled: bool = True
    topics: dict[str, str] = {}
    groups: dict[str, str] = {}
    sources: list[str] = []

    def __repr__(self) -> str:
        return f"AccountEntry({self.name!r})"


class AccountFile(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    accounts: list[AccountEntry] = []


def load_accounts(path: str | os.PathLike[str]) -> Accounts:
    """Raises ConfigError, which names the account and never shows a secret."""
    file = Path(path)
    text = _read(file)
    try:
        if file.suffix in (".yml", ".yaml"):
            return _plain_acl(text, file)
        return Accounts(_account(entry) for entry in _decode(text).accounts)
    except (ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(f"the accounts are not taken: {error}", file=file, source=str(file)) from None


def read_entries(path: str | os.PathLike[str]) -> AccountFile:
    """The file of ours for changing it; empty when it is not there yet."""
    file = Path(path)
    if file.suffix in (".yml", ".yaml"):
        raise ConfigError(
            "plain_acl.yml is read, not written", file=file, source=str(file), hint="edit it by hand"
        )
    if not file.exists():
        return AccountFile()
    try:
        return _decode(_read(file))
    except (ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(f"the accounts are not taken: {error}", file=file, source=str(file)) from None


def write_entries(path: str | os.PathLike[str], content: AccountFile) -> None:
    """Replace the file in one step, readable by its owner only. What would not load is not written."""
    file = Path(path)
    try:
        Accounts(_account(entry) for entry in content.accounts)
    except ValueError as error:
        raise ConfigError(str(error), file=file, source=str(file)) from None
    data = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            data = stream.read(MAX_FILE_SIZE + 1)
    except OSError as error:
        raise ConfigError(
            f"can't read the accounts: {error.strerror}",
            file=file,
            source=str(file),
            hint="`penstock account add` makes the file",
        ) from None
    if len(data) > MAX_FILE_SIZE:
        raise ConfigError(f"more than {MAX_FILE_SIZE} bytes of accounts", file=file, source=str(file))
    if mode & 0o077:
        log.warning("%s holds secrets and others than its owner may read it (chmod 600)", file)
    return data


def _decode(text: bytes) -> AccountFile:
    return msgspec.json.decode(text, type=AccountFile)


def _account(entry: AccountEntry) -> Account:
    where = f"account {entry.name!r}"
    if not _NAME.fullmatch(entry.name):
        raise ValueError(f"{where}: a name has up to 64 letters, digits and . _ @ -")
    if len(entry.secret) < SHORTEST_SECRET:
        raise ValueError(f"{where}: its secret has less than {SHORTEST_SECRET} characters")
    try:
        return Account(
            name=entry.name,
            secret=entry.secret.encode(),
            admin=entry.admin,
            enabled=entry.enabled,
            topics=Rights({name: parse_actions(text) for name, text in entry.topics.items()}),
            groups=Rights({name: parse_actions(text) for name, text in entry.groups.items()}),
            sources=AddressPatterns(entry.sources),
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


# -- RocketMQ 4's file -------------------------------------------------------------------------------------


def _plain_acl(text: bytes, file: Path) -> Accounts:
    try:
        import yaml
    except ImportError:
        raise ConfigError(
            "reading a YAML file of accounts needs PyYAML",
            file=file,
            source=str(file),
            hint="pip install pyyaml",
        ) from None
    try:
        # The base loader makes text of everything and objects of nothing: a secret 12345678 stays what it is.
        document: Any = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"no YAML{f' in line {mark.line + 1}' if mark else ''}") from None
    document = _mapping(document, "the file")
    trusted = AddressPatterns(
        _texts(document.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses")
    )
    entries = document.get("accounts") or []
    if not isinstance(entries, list):
        raise ValueError("accounts is no list")
    return Accounts((_plain_account(_mapping(entry, "an account")) for entry in entries), trusted)


def _plain_account(entry: dict[str, Any]) -> Account:
    name = _text(entry, "accessKey")
    secret = _text(entry, "secretKey")
    where = f"account {name[:64]!r}"
    if min(len(name), len(secret)) < _SHORTEST_PLAIN:
        raise ValueError(
            f"{where}: accessKey and secretKey have more than {_SHORTEST_PLAIN - 1} characters each"
        )
    try:
        return Account(
            name=name,
            secret=secret.encode(),
            admin=_text(entry, "admin").lower() == "true",
            topics=_plain_rights(entry, "topicPerms", "defaultTopicPerm"),
            groups=_plain_rights(entry, "groupPerms", "defaultGroupPerm"),
            trusted=AddressPatterns([_text(entry, "whiteRemoteAddress")]),
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _plain_rights(entry: dict[str, Any], key: str, default: str) -> Rights:
    given: dict[str, Action] = {}
    for line in _texts(entry.get(key), key):
        name, sign, actions = line.partition("=")
        if not sign or not name.strip():
            raise ValueError(f"{key}: {line[:80]!r} is not name=PERM")
        given[name.strip()] = parse_actions(actions)
    others = _text(entry, default)
    if others:
        given.setdefault("*", parse_actions(others))
    return Rights(given)


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no mapping")
    return value


def _text(entry: dict[str, Any], key: str) -> str:
    value = entry.get(key) or ""
    if not isinstance(value, str):
        raise ValueError(f"{key} is no text")
    return value.strip()


def _texts(value: Any, key: str) -> list[str]:
    found = value or []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{key} is no list of texts")
    return list(found)

"""Options of brokers and name servers, with type, default, unit and meaning. Pure.

The attrs classes of the config.py modules are the list; nothing here knows an option by its name.
"""

import difflib
import platform
import re
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import attrs
from attrs import frozen

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.config_changes import CHANGEABLE, range_text
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.config import rocketmq_keys
from twinlog.cluster.config.config_file import allowed_text, format_value, options_of
from twinlog.cluster.config.environment import variable_of
from twinlog.cluster.config.redaction import shown
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.http.config import HttpConfig
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.ha.config import HAConfig
from twinlog.store.config import StoreConfig


@frozen(kw_only=True)
class OptionExplained:
    """One option."""

    key: str
    of: str  # broker, name server, or both
    type: str
    default: str | None
    unit: str | None
    allowed: str | None
    meaning: str
    change: str | None  # What a running broker takes; null: it is read at the start only.
    variable: str  # The environment variable that sets it.


class NoOptionError(Exception):
    """There is no such option; `near` are those that are spelled alike."""

    def __init__(self, key: str, near: tuple[str, ...], *, is_rocketmqs: bool) -> None:
        what = f"RocketMQ's option {key} is without effect in twinlog" if is_rocketmqs else f"there is no option {key}"
        super().__init__(what)
        self.key = key
        self.near = near
        self.is_rocketmqs = is_rocketmqs


_SHARED = (ServerConfig, TlsConfig, HttpConfig)
_CLASSES: dict[str, tuple[type, ...]] = {
    "broker": (BrokerConfig, StoreConfig, HAConfig, EtcdConfig, AclConfig, *_SHARED),
    "name server": (NamesrvConfig, *_SHARED),
}


@cache
def all_options() -> Mapping[str, OptionExplained]:
    """Every option by its key."""
    found: dict[str, OptionExplained] = {}
    for owner, classes in _CLASSES.items():
        for key, options in options_of(classes).items():
            if key in found:
                found[key] = attrs.evolve(found[key], of="both")
                continue
            option = options[0]
            attribute = option.attribute
            found[key] = OptionExplained(
                key=key,
                of=owner,
                type=_type_name(option.wanted),
                default=_default(attribute),
                unit=_unit(attribute.name, option.wanted, option.doc),
                allowed=allowed_text(attribute.validator) or None if attribute.validator else _members(option.wanted),
                meaning=option.doc,
                change=changeable(key),
                variable=variable_of(key),
            )
    return found


def explain_option(key: str) -> OptionExplained:
    """Raises NoOptionError."""
    options = all_options()
    if key in options:
        return options[key]
    by_lower = {each.lower(): each for each in options}
    if key.lower() in by_lower:
        return options[by_lower[key.lower()]]
    near = difflib.get_close_matches(key.lower(), by_lower, n=3, cutoff=0.6)
    near += [each for each in by_lower if key.lower() in each and each not in near][:5]
    known = rocketmq_keys.BROKER_FILE | rocketmq_keys.NAMESRV_FILE
    raise NoOptionError(key, tuple(by_lower[each] for each in near), is_rocketmqs=key in known)


def changeable(key: str) -> str | None:
    """Description of the values that a running broker accepts; None: the option needs a restart."""
    if key not in CHANGEABLE:
        return None
    allowed = CHANGEABLE[key]
    return range_text(allowed) if allowed is not None else "any value of its type"


def default_of(key: str) -> str | None:
    """The default as in a configuration file; None: no default, or not an option of ours."""
    option = all_options().get(key)
    return option.default if option is not None else None


def _default(attribute: "attrs.Attribute[Any]") -> str | None:
    value = attribute.default
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        return None
    return shown(attribute.name, format_value(value)) if value not in (None, "") else ""


def default_text(option: OptionExplained) -> str:
    """The default for people: values that depend on the machine are described."""
    if option.default is None:
        return "computed"
    return {"": "none", platform.node(): "this host's name"}.get(option.default, option.default)


def _type_name(wanted: Any) -> str:
    if get_origin(wanted) in (Union, types.UnionType):
        return _type_name(next(each for each in get_args(wanted) if each is not type(None)))
    if get_origin(wanted) is tuple:
        return f"list of {_type_name(get_args(wanted)[0])}s, ; between them"
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return "choice"
    return {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}.get(wanted, "text")


def _members(wanted: Any) -> str | None:
    return " or ".join(wanted.__members__) if isinstance(wanted, type) and issubclass(wanted, Enum) else None


_UNITS = (
    (re.compile(r"_ms$|_millis$"), "milliseconds"),
    (re.compile(r"_seconds(_max)?$"), "seconds"),
    (re.compile(r"_hours$"), "hours"),
    (re.compile(r"_(percent|ratio)$"), "per cent"),
    (re.compile(r"bytes|_size(_max)?$|_size_"), "bytes"),
)


def _unit(name: str, wanted: Any, doc: str) -> str | None:
    if wanted not in (int, float):
        return None
    for pattern, unit in _UNITS:
        if pattern.search(name):
            return unit
    for word in ("milliseconds", "seconds", "hours", "bytes"):
        if re.search(rf"\b{word}\b", doc):
            return word
    return None

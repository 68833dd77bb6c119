"""Conversion of RocketMQ's properties files to configuration classes.

text -> entries (java.util.Properties' grammar) -> settings with a source each -> one frozen object per class

A key belongs to every class that declares it (`brokerRole` to several). The last setting of a key wins, as in Java: files first,
then `--set`. Nothing here opens a file or knows the options: those are the attrs fields with a `key` in their metadata. Source:
MixAll.properties2Object (RocketMQ 4.9.8), which ignores invalid values silently; here they are errors.
"""

import re
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from attrs import Attribute, fields, frozen

from twinlog.cluster.config.properties_file import ConfigError, parse_properties
from twinlog.cluster.config.redaction import shown

T = TypeVar("T")


@frozen
class Setting:
    """A value that the user set. `source` is FILE:LINE, --set, or the name of a variable."""

    key: str
    value: str
    source: str


@frozen
class Effective:
    """The effective value of an option, and its source."""

    key: str
    value: Any
    source: str
    doc: str

    @property
    def text(self) -> str:
        """The value as in a properties file; empty for None."""
        return format_value(self.value)


@frozen
class Configuration:
    """The result of `configure`: an object for each class, effective values, and keys to warn about."""

    objects: Mapping[type, Any]
    effective: tuple[Effective, ...]
    unknown: tuple[str, ...] = ()  # One sentence for each unknown key.
    without_effect: tuple[str, ...] = ()  # Keys of RocketMQ without effect here.

    def of(self, cls: type[T]) -> T:
        """Return the object of that class. Raises KeyError for a class that was not configured."""
        found: T = self.objects[cls]
        return found


def settings_of(text: str, name: str) -> list[Setting]:
    """Parse the settings of a properties file called `name`."""
    return [Setting(entry.key, entry.value, f"{name}:{entry.line}") for entry in parse_properties(text)]


def setting_of(argument: str) -> Setting:
    """Parse a `--set KEY=VALUE` argument. Raises ConfigError without a key or a `=`."""
    key, equals, value = argument.partition("=")
    if not key.strip() or not equals:
        raise ConfigError(f"--set {argument}: expected KEY=VALUE, as a line of a configuration file")
    return Setting(key.strip(), value.strip(), "--set")


_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
_BOOLEANS = {"true": True, "false": False}


def expand(value: str, properties: Mapping[str, str]) -> str:
    """Replace `${user.home}` and the like with the values in `properties`; keep unknown ones."""
    return _PLACEHOLDER.sub(lambda match: properties.get(match[1].removeprefix("env."), match[0]), value)


def format_value(value: Any) -> str:
    """Format a value for a properties file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple):
        return ";".join(map(format_value, value))
    return str(value)


def read_value(text: str, wanted: Any) -> Any:
    """Convert `text` to `wanted`: int, float, bool, str, Path, an Enum, a tuple of them (separated by `;` or `,`), or None.

    Raises ValueError with what is allowed as its message.
    """
    if get_origin(wanted) in (Union, types.UnionType):
        choices = [each for each in get_args(wanted) if each is not type(None)]
        return None if text == "" and len(choices) < len(get_args(wanted)) else read_value(text, choices[0])
    if get_origin(wanted) is tuple:
        return tuple(read_value(part.strip(), get_args(wanted)[0]) for part in re.split("[;,]", text) if part.strip())
    if wanted is bool:
        if text.lower() not in _BOOLEANS:
            raise ValueError("true or false")
        return _BOOLEANS[text.lower()]
    if wanted is int:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
            raise ValueError("a whole number")
        return int(text)
    if wanted is float:
        try:
            return float(text)
        except ValueError:
            raise ValueError("a number") from None
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        if text not in wanted.__members__:
            raise ValueError(" or ".join(wanted.__members__))
        return wanted[text]
    if wanted is Path:
        if not text:
            raise ValueError("a path")
        return Path(text).expanduser()
    assert wanted is str, f"no reader for values of type {wanted}"
    return text


@frozen
class _Option:
    cls: type
    attribute: "Attribute[Any]"
    wanted: Any
    key: str
    doc: str


def options_of(classes: Iterable[type]) -> dict[str, list[_Option]]:
    """Return the options of attrs classes by key, in the order of declaration."""
    options: dict[str, list[_Option]] = {}
    for cls in classes:
        hints = get_type_hints(cls)
        for attribute in fields(cls):
            if key := attribute.metadata.get("key"):
                option = _Option(cls, attribute, hints[attribute.name], key, attribute.metadata.get("doc", ""))
                options.setdefault(key, []).append(option)
    return options


def configure(
    classes: Sequence[type],
    settings: Iterable[Setting],
    *,
    also_known: Collection[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Configuration:
    """Make one object of each class from the settings; the last setting of a key counts.

    `also_known` are valid keys without effect; `properties` is what `${...}` may refer to, `user.home` by default. Raises one
    ConfigError for all invalid values, with source, key, value and what is allowed.
    """
    properties = {"user.home": str(Path.home())} if properties is None else properties
    options = options_of(classes)
    given = {setting.key: setting for setting in settings}
    arguments: dict[type, dict[str, Any]] = {cls: {} for cls in classes}
    problems = []
    for key in options.keys() & given.keys():
        for option in options[key]:
            try:
                value = read_value(expand(given[key].value, properties), option.wanted)
                _validate(option, value)
            except ValueError as error:
                problems.append((given[key], str(error)))
                break
            arguments[option.cls][option.attribute.alias or option.attribute.name] = value
    if problems:
        raise ConfigError("\n".join(_problem(*each) for each in problems))
    objects = {cls: _make(cls, arguments[cls]) for cls in classes}
    known = {*options, *also_known}
    others = [setting for key, setting in given.items() if key not in options]
    return Configuration(
        objects,
        tuple(_effective(key, options[key][0], objects, given) for key in options),
        unknown=tuple(_unknown(setting, known) for setting in others if setting.key not in known),
        without_effect=tuple(setting.key for setting in others if setting.key in known),
    )


def _make(cls: type, arguments: Mapping[str, Any]) -> Any:
    try:
        return cls(**arguments)
    except (TypeError, ValueError) as error:  # Options that contradict each other.
        raise ConfigError(f"the configuration contradicts itself: {error}") from error


def _effective(key: str, option: _Option, objects: Mapping[type, Any], given: Mapping[str, Setting]) -> Effective:
    value = getattr(objects[option.cls], option.attribute.name)
    return Effective(key, value, given[key].source if key in given else "default", option.doc)


def _problem(setting: Setting, allowed: str) -> str:
    return f"{setting.source}: {setting.key}={shown(setting.key, setting.value)}: expected {allowed}"


def _unknown(setting: Setting, known: Collection[str]) -> str:
    return f"{setting.source}: unknown key {setting.key}{did_you_mean(setting.key, known, cutoff=0.6)}"


def did_you_mean(name: str, known: Collection[str], *, cutoff: float) -> str:
    """Suggest the known name that is most like this one; "" if none is. `cutoff`: from 0, any, to 1, the same letters."""
    import difflib  # Only a mistake needs it.

    by_lower = {key.lower(): key for key in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""


def _validate(option: _Option, value: Any) -> None:
    validator = option.attribute.validator
    try:
        if validator is not None:
            validator(None, option.attribute, value)
    except (ValueError, TypeError) as error:
        raise ValueError(allowed_text(validator) or _plain(error, option.attribute.name)) from error


def allowed_text(validator: Any) -> str:
    """Describe what an attrs validator accepts; empty for validators without a description."""
    parts = getattr(validator, "_validators", None) or (validator,)
    words = []
    for part in parts:
        if hasattr(part, "bound"):
            words.append(f"{part.compare_op} {part.bound}")
        elif hasattr(part, "options"):
            words.append("one of " + ", ".join(map(format_value, part.options)))
        else:
            return ""
    number = any(word[0] in "<>" for word in words)
    return ("a number " if number else "") + " and ".join(words)


def _plain(error: Exception, name: str) -> str:
    """Return the message of a validator without the name of the field: "'size' must be >= 4096: 5" -> ">= 4096"."""
    text = str(error.args[0] if error.args else error)
    text = text.removeprefix(f"'{name}' must be ").removeprefix(f"'{name}' ")
    return text.rpartition(":")[0].strip() or text

"""Named clusters with their name servers and credentials, in one TOML file of the user, by the XDG rules.

current = "test"

[contexts.test]
name_servers = ["10.0.0.1:9876", "10.0.0.2:9876"]
credentials = "/home/me/.rocketmq/tools.yml"        # file with accessKey and secretKey; no secrets here
tls = true
trust = "/home/me/ca.pem"                           # without it any server is trusted, as in RocketMQ
secret_file = "/home/me/group-secret"               # of the group secret, for role changes from another machine
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from twinlog.cluster.user_errors import USAGE, UserError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEYS = {"name_servers", "credentials", "tls", "trust", "secret_file"}


class ContextError(UserError):
    """The file or a context is invalid. `next_step` says what to do."""

    exit_status = USAGE

    def __init__(self, what: str, next_step: str = "") -> None:
        super().__init__(what)
        self.next_step = next_step


@frozen(kw_only=True)
class Context:
    """One cluster. Paths are as the user wrote them; secrets are read when they are needed."""

    name: str
    name_servers: tuple[str, ...]
    credentials: Path | None = None
    tls: bool = False
    trust: Path | None = None
    secret_file: Path | None = None


@frozen
class Contexts:
    """All contexts, and the one in use."""

    contexts: Mapping[str, Context] = field(factory=dict)
    current: str | None = None

    def find(self, name: str) -> Context:
        """Return a context. Raises ContextError for an unknown name."""
        if name not in self.contexts:
            there = ", ".join(self.contexts) or "none yet"
            raise ContextError(
                f"there is no context {name}; there are: {there}", "Add it with: twinlog context add NAME -n HOST:PORT"
            )
        return self.contexts[name]

    def with_context(self, context: Context) -> "Contexts":
        """Return a copy with one more context; the first one is in use. Raises ContextError for an invalid name."""
        if not _NAME.fullmatch(context.name):
            raise ContextError(f"{context.name!r} cannot be a context's name: expected letters, digits, . _ and -")
        if not context.name_servers:
            raise ContextError("a context needs a name server", "Name it with -n HOST:PORT")
        return evolve(self, contexts={**self.contexts, context.name: context}, current=self.current or context.name)

    def without(self, name: str) -> "Contexts":
        """Return a copy without a context. Raises ContextError for an unknown name."""
        self.find(name)
        left = {each: context for each, context in self.contexts.items() if each != name}
        return Contexts(left, None if self.current == name else self.current)


@frozen(kw_only=True)
class ListedContext:
    """One context in the output."""

    name: str
    in_use: bool
    name_servers: tuple[str, ...]
    credentials: str | None
    tls: bool
    trust: str | None
    secret_file: str | None


@frozen
class ContextList:
    """Every context."""

    contexts: tuple[ListedContext, ...]


def listed(contexts: Contexts) -> ContextList:
    """Convert to the output of `twinlog context list`."""
    return ContextList(
        tuple(
            ListedContext(
                name=each.name,
                in_use=each.name == contexts.current,
                name_servers=each.name_servers,
                credentials=str(each.credentials) if each.credentials else None,
                tls=each.tls,
                trust=str(each.trust) if each.trust else None,
                secret_file=str(each.secret_file) if each.secret_file else None,
            )
            for each in contexts.contexts.values()
        )
    )


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file."""
    base = environment.get("XDG_CONFIG_HOME") or ""
    return (Path(base) if base.startswith("/") else Path.home() / ".config") / "twinlog" / "config.toml"


def load_contexts(path: Path) -> Contexts:
    """Read the file; no contexts without it. Raises ContextError for an invalid file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise ContextError(f"{path} cannot be read: {error}") from error
    import tomllib  # Most users have no such file: commands start faster without a parser.

    try:
        return _read(tomllib.loads(text))
    except (AttributeError, TypeError, ValueError) as error:
        raise ContextError(f"{path} is invalid: {error}", "Correct it, or remove it") from error


def _read(value: Mapping[str, Any]) -> Contexts:
    contexts = {}
    for name, entry in value.get("contexts", {}).items():
        if unknown := sorted(set(entry) - _KEYS):
            raise ValueError(f"contexts.{name} has {unknown[0]}; known are {', '.join(sorted(_KEYS))}")
        if not isinstance(entry.get("name_servers"), list):
            raise ValueError(f"contexts.{name} has no list name_servers")
        contexts[name] = Context(
            name=name,
            name_servers=tuple(str(each) for each in entry["name_servers"]),
            credentials=_path(entry.get("credentials")),
            tls=entry.get("tls") is True,
            trust=_path(entry.get("trust")),
            secret_file=_path(entry.get("secret_file")),
        )
    current = value.get("current")
    if current is not None and current not in contexts:
        raise ValueError(f"current is {current!r}, which is no context")
    return Contexts(contexts, current)


def _path(text: Any) -> Path | None:
    return Path(str(text)).expanduser() if text else None


def save_contexts(path: Path, contexts: Contexts) -> None:
    """Write the file atomically, readable only by the user. Raises ContextError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        new.touch(mode=0o600)
        new.write_text(_text(contexts), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise ContextError(f"{path} cannot be written: {error}") from error


def _text(contexts: Contexts) -> str:
    lines = ["# Written by `twinlog context`; comments in it are lost."]
    if contexts.current is not None:
        lines.append(f"current = {_quoted(contexts.current)}")
    for name, context in contexts.contexts.items():
        lines += ["", f"[contexts.{_quoted(name)}]"]
        lines.append(f"name_servers = [{', '.join(map(_quoted, context.name_servers))}]")
        lines += [f"credentials = {_quoted(str(context.credentials))}"] if context.credentials else []
        lines += ["tls = true"] if context.tls else []
        lines += [f"trust = {_quoted(str(context.trust))}"] if context.trust else []
        lines += [f"secret_file = {_quoted(str(context.secret_file))}"] if context.secret_file else []
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Format a basic string of TOML, which has all escapes of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

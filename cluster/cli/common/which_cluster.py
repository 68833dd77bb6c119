"""The cluster of a command: the first of -n, --context, NAMESRV_ADDR, the context in use, this machine.

-n with --context uses those name servers with the credentials and TLS of the context. A context that is not named on the command
line (TWINLOG_CONTEXT, the one in use) is ignored with -n: its secrets belong to another cluster.
"""

from pathlib import Path

import click

from twinlog.cluster.config.contexts import Context, ContextError, contexts_path, load_contexts

DEFAULT_NAMESRV = "127.0.0.1:9876"
_CHOSEN, _FROM_ENVIRONMENT, _GIVEN = "twinlog.context", "twinlog.context.environment", "twinlog.namesrv"
_SECRET_FILE = "twinlog.secret"


def remember_context(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    """Store the named context; one from the environment counts only without -n. Raises ContextError for an unknown name."""
    if name is None or context.resilient_parsing:
        return
    if context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.ENVIRONMENT:
        context.meta[_FROM_ENVIRONMENT] = name
    else:
        context.meta[_CHOSEN] = load_contexts(contexts_path()).find(name)


def name_servers_of(context: click.Context, parameter: click.Parameter, given: str | None) -> str:
    """Return the name servers to ask, separated by semicolons."""
    source = context.get_parameter_source(parameter.name or "")
    if given is not None and source is click.core.ParameterSource.COMMANDLINE:
        context.meta[_GIVEN] = given
        return given
    if (name := context.meta.get(_FROM_ENVIRONMENT)) is not None:
        context.meta[_CHOSEN] = load_contexts(contexts_path()).find(name)
    chosen: Context | None = context.meta.get(_CHOSEN)
    if chosen is None and given is None:
        chosen = _in_use(context)
    if chosen is not None:
        context.meta[_CHOSEN] = chosen
        return ";".join(chosen.name_servers)
    return DEFAULT_NAMESRV if given is None else given


def _in_use(context: click.Context) -> Context | None:
    if not contexts_path().is_file():
        return None
    try:
        contexts = load_contexts(contexts_path())
    except ContextError:
        if context.resilient_parsing:
            return None
        raise
    return contexts.contexts.get(contexts.current or "")


def chosen_context() -> Context | None:
    """Return the context of the running command; None: only name servers were given."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_CHOSEN) if context is not None else None


def remember_secret_file(context: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
    """Store the file of the group secret that was named on the command line."""
    context.meta[_SECRET_FILE] = path


def chosen_secret_file() -> Path | None:
    """Return it for the running command; None: that of the context or the environment, if any."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_SECRET_FILE) if context is not None else None


def cluster_text() -> str:
    """Return the cluster's name for a prompt, as far as one was given; else ""."""
    context = click.get_current_context(silent=True)
    meta = context.meta if context is not None else {}
    chosen: Context | None = meta.get(_CHOSEN)
    words = f" in {chosen.name}" if chosen is not None else ""
    return f"{words} at {meta[_GIVEN]}" if _GIVEN in meta else words


def complete_contexts(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a context."""
    try:
        return [name for name in load_contexts(contexts_path()).contexts if name.startswith(incomplete)]
    except ContextError:
        return []

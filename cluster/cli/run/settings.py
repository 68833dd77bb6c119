"""The configuration of one process, from its file, options and environment; warnings go to stderr.

Precedence: --set, then options, then TWINLOG_* variables, then the file, then NAMESRV_ADDR (as RocketMQ's brokers read it),
then defaults.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import click

from twinlog.cluster.admin.options import all_options
from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.cli.common.errors import explained
from twinlog.cluster.cli.common.options import together
from twinlog.cluster.cli.common.render import Column, table
from twinlog.cluster.config import rocketmq_keys
from twinlog.cluster.config.config_file import Configuration, Setting, configure, options_of, setting_of, settings_of
from twinlog.cluster.config.environment import PREFIX, FromEnvironment, read_environment
from twinlog.cluster.config.redaction import is_secret, shown
from twinlog.cluster.config.tls_file import file_settings
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.http.config import HttpConfig
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.ha.config import HAConfig
from twinlog.store.config import StoreConfig


def load_broker(
    config: Path | None,
    overrides: Sequence[str],
    *,
    namesrv: str | None,
    environment: Mapping[str, str] = os.environ,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> Configuration:
    """Load the configuration; `defaults` are below all else. Raises CliError, exit status 2, for an invalid value."""
    first, last = [Setting(key, value, "default here") for key, value in defaults.items()], []
    if address := environment.get("NAMESRV_ADDR"):
        first.append(Setting("namesrvAddr", address, "NAMESRV_ADDR"))
    if namesrv is not None:
        last.append(Setting("namesrvAddr", namesrv, "--namesrv"))
    classes = (BrokerConfig, StoreConfig, HAConfig, EtcdConfig, ServerConfig, AclConfig, TlsConfig, HttpConfig)
    return _load(classes, config, first, last, overrides, rocketmq_keys.BROKER_FILE, environment)


def load_namesrv(
    config: Path | None, overrides: Sequence[str], *, port: int | None, environment: Mapping[str, str] = os.environ
) -> Configuration:
    """Load the configuration. Raises CliError, exit status 2, for an invalid value."""
    last = [] if port is None else [Setting("listenPort", str(port), "--port")]
    classes = (NamesrvConfig, ServerConfig, TlsConfig, HttpConfig)
    return _load(classes, config, [], last, overrides, rocketmq_keys.NAMESRV_FILE, environment)


def _load(
    classes: Sequence[type],
    config: Path | None,
    first: Sequence[Setting],
    last: Sequence[Setting],
    overrides: Sequence[str],
    also_known: frozenset[str],
    environment: Mapping[str, str],
) -> Configuration:
    from_file = settings_of(_read(config), str(config)) if config else []
    with explained(()):
        variables = _variables(environment, {*options_of(classes), *also_known})
        told = [*variables.settings, *last, *map(setting_of, overrides)]
        settings = [*first, *from_file, *file_settings([*from_file, *told]), *told]
        configuration = configure(classes, settings, also_known=also_known, properties=_properties())
    for key in {setting.key for setting in map(setting_of, overrides) if is_secret(setting.key)}:
        click.echo(
            f"warning: --set {key}=...: other users of this machine can read command lines; use a file", err=True
        )
    for sentence in (*variables.unknown, *configuration.unknown):
        click.echo(f"warning: {sentence}", err=True)
    if configuration.without_effect:
        click.echo(f"note: no effect here: {', '.join(configuration.without_effect)}", err=True)
    return configuration


def _variables(environment: Mapping[str, str], keys: Collection[str]) -> FromEnvironment:
    """Brokers and name servers may share an environment: neither warns about variables of the other."""
    if not any(name.startswith(PREFIX) for name in environment):
        return FromEnvironment((), ())

    elsewhere = {*all_options(), *rocketmq_keys.BROKER_FILE, *rocketmq_keys.NAMESRV_FILE} - {*keys}
    return read_environment(environment, keys, elsewhere)


def _properties() -> dict[str, str]:
    """Return what `${...}` in a value may refer to: Java's user.home and user.dir, and the environment."""
    return {**os.environ, "user.home": str(Path.home()), "user.dir": os.getcwd()}


def _read(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")  # What java.util.Properties reads.


_CONFIG_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


# Of both a name server and a broker.
member_options = together(
    click.option("-c", "--config", type=_CONFIG_FILE, help="Configuration file in RocketMQ's format, KEY=VALUE lines."),
    click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a line of the file; repeatable."
    ),
    click.option("-p", "--print", "print_only", is_flag=True, help="Print the effective configuration and exit."),
    click.option("--until-stdin-closes", is_flag=True, hidden=True, help="Stop when the parent process ends."),
)


def print_configuration(configuration: Configuration) -> None:
    """Print the effective options."""
    columns = [
        Column("KEY", lambda e: e.key),
        Column("VALUE", lambda e: shown(e.key, e.text)),
        Column("SOURCE", lambda e: e.source),
        Column("MEANING", lambda e: e.doc, wide=True),
    ]
    table(columns, configuration.effective, "pretty")

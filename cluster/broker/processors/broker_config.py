"""25, 26: what a broker is told to be. Source: AdminBrokerProcessor.java, Configuration.java (RocketMQ 4.9.8)."""

from twinlog.cluster.broker import reconfigure, status
from twinlog.cluster.broker.config_changes import read_changes
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.config.config_file import format_value
from twinlog.cluster.config.redaction import shown
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.broker_admin import GetBrokerConfig, UpdateBrokerConfig
from twinlog.cluster.remoting.request import Reply, Request


async def update_broker_config(broker: BrokerParts, header: UpdateBrokerConfig, request: Request) -> Reply:
    """`key=value` lines: all of them hold from now on, and are in the configuration file, or none is."""
    if not request.body:
        return Reply(ext=None)
    async with broker.config_lock:
        known = status.options(broker)
        changes = read_changes(request.body, broker.config, broker.store_config, known)
        if broker.config_file is not None and changes.texts:
            try:
                await reconfigure.keep(broker.config_file, changes)
            except OSError as error:
                remark = f"nothing was changed: the configuration file cannot be written: {error.strerror}"
                raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error
        reconfigure.apply(broker, changes)
    return Reply(ext=None)


def get_broker_config(broker: BrokerParts, header: GetBrokerConfig, request: Request) -> Reply:
    """All options as `key=value` lines, but for secrets."""
    options = status.rocketmq_options(broker) | status.options(broker)
    lines = sorted(f"{key}={shown(key, format_value(value))}\n" for key, value in options.items())
    return Reply.success("".join(lines).encode(), version=fastjson.dumps(broker.config_version.plain()).decode())


HANDLERS = (update_broker_config, get_broker_config)

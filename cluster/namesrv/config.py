"""What a name server can be told. Source: NamesrvConfig.java, NettyServerConfig.java (RocketMQ 4.9.8)."""

from pathlib import Path

from attrs import frozen, validators

from twinlog.store.config import option


@frozen(kw_only=True)
class NamesrvConfig:
    """Times in milliseconds."""

    listen_port: int = option(
        9876, key="listenPort", doc="TCP port", validator=validators.and_(validators.ge(0), validators.le(65_535))
    )
    kv_config_path: Path | None = option(
        Path("~/namesrv/kvConfig.json"), key="kvConfigPath", doc="where the KV configuration is kept; none: in memory"
    )
    order_message_enable: bool = option(
        False, key="orderMessageEnable", doc="routes carry the topic's orderTopicConf from the KV configuration"
    )
    scan_not_active_broker_interval_ms: int = option(
        10_000,
        key="scanNotActiveBrokerInterval",
        doc="how often to look for brokers that have gone silent",
        validator=validators.ge(1),
    )
    broker_not_active_timeout_ms: int = option(
        120_000,
        key="brokerNotActiveTimeoutMillis",
        doc="a broker that has not registered for this long is dropped",
        validator=validators.ge(1),
    )

"""What a remoting server can be told. Source: NettyServerConfig, RocketMQ 4.9.8; bindAddress 5.3.3."""

from attrs import frozen, validators

from store.config import option


@frozen(kw_only=True)
class ServerConfig:
    """The server side of the remoting protocol, the same for brokers and name servers."""

    bind_address: str = option("0.0.0.0", key="bindAddress", doc="the address to listen at")
    idle_seconds_max: int = option(
        120,
        key="serverChannelMaxIdleTimeSeconds",
        doc="a connection without any traffic is closed after this long",
        validator=validators.ge(1),
    )
    half_frame_seconds_max: int = option(
        30, key="halfFrameMaxSeconds", doc="the longest wait for the rest of a frame", validator=validators.ge(1)
    )
    connections_max: int = option(
        20_000, key="serverMaxConnections", doc="connections at a time; more are closed at once"
    )
    unsent_bytes_max: int = option(
        64 << 20, key="serverUnsentBytesMax", doc="answers that a connection may leave unread; it is closed beyond that"
    )

"""What a remoting server can be told. Source: NettyServerConfig, RocketMQ 4.9.8; bindAddress 5.3.3."""

from attrs import frozen, validators

from twinlog.store.config import option


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
        30,
        key="halfFrameMaxSeconds",
        doc="the longest silence within a frame; one that comes at less than 1 KiB a second has no longer either",
        validator=validators.ge(1),
    )
    connections_max: int = option(
        20_000, key="serverMaxConnections", doc="connections at a time; more are closed at once"
    )
    unsent_bytes_max: int = option(
        64 << 20,
        key="serverUnsentBytesMax",
        doc="bytes of answers that a connection may leave unread; it is closed beyond that, and not read from beyond 4 MiB",
    )
    unread_seconds_max: int = option(
        60,
        key="serverUnreadMaxSeconds",
        doc="a connection that leaves answers unread and takes nothing for so long is closed",
        validator=validators.ge(1),
    )
    bytes_max: int = option(
        512 << 20,
        key="serverBytesMax",
        doc="bytes of unread answers and unfinished frames of all connections; who has most is closed beyond that",
    )
    requests_max: int = option(
        10_000,
        key="serverRequestsMax",
        doc="requests of each port whose answers take their time; more are answered with code 2, [OVERLOAD]",
        validator=validators.ge(1),
    )
    request_bytes_max: int = option(
        64 << 20, key="serverRequestBytesMax", doc="bytes of the bodies of these", validator=validators.ge(1)
    )
    handshake_seconds_max: int = option(
        10, key="tlsHandshakeMaxSeconds", doc="the longest wait for a TLS handshake", validator=validators.ge(1)
    )

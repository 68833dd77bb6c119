"""Configuration of remoting servers. Source: NettyServerConfig, RocketMQ 4.9.8; bindAddress 5.3.3."""

from attrs import frozen, validators

from twinlog.store.config import option


@frozen(kw_only=True)
class ServerConfig:
    """Options of the remoting server, the same for brokers and name servers."""

    bind_address: str = option("0.0.0.0", key="bindAddress", doc="the address to listen on")
    idle_seconds_max: int = option(
        120,
        key="serverChannelMaxIdleTimeSeconds",
        doc="a connection without traffic is closed after this long",
        validator=validators.ge(1),
    )
    half_frame_seconds_max: int = option(
        30,
        key="halfFrameMaxSeconds",
        doc="the longest pause within a frame; a frame that arrives at less than 1 KiB a second has no more time either",
        validator=validators.ge(1),
    )
    connections_max: int = option(
        20_000, key="serverMaxConnections", doc="open connections; further ones are closed at once"
    )
    unsent_bytes_max: int = option(
        64 << 20,
        key="serverUnsentBytesMax",
        doc="bytes of responses that a client may leave unread; beyond that its connection is closed, beyond 4 MiB not read from",
    )
    unread_seconds_max: int = option(
        60,
        key="serverUnreadMaxSeconds",
        doc="a connection is closed when its client leaves responses unread and takes nothing for so long",
        validator=validators.ge(1),
    )
    bytes_max: int = option(
        512 << 20,
        key="serverBytesMax",
        doc="bytes of unread responses and partial frames of all connections; beyond that the largest user is closed",
    )
    requests_max: int = option(
        10_000,
        key="serverRequestsMax",
        doc="requests of each port that wait for a slow handler; further ones are answered with code 2, [OVERLOAD]",
        validator=validators.ge(1),
    )
    request_bytes_max: int = option(
        64 << 20, key="serverRequestBytesMax", doc="bytes of the bodies of such requests", validator=validators.ge(1)
    )
    handshake_seconds_max: int = option(
        10, key="tlsHandshakeMaxSeconds", doc="time limit of a TLS handshake", validator=validators.ge(1)
    )

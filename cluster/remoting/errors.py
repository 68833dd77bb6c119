"""Errors of remoting. Source: org.apache.rocketmq.remoting.exception (RocketMQ 4.9.8)."""

from twinlog.cluster.remoting.codes import ResponseCode

_ACL_EXCEPTION = "AclException"


class RemotingError(Exception):
    """Parent of everything that fails at a broker or name server, or on the way there."""

    next_step: str = "Log it, and try again later; a message that was sent may have been stored."


class RemotingProtocolError(RemotingError):
    """The peer broke the framing or the header format. Ends that connection, never the service."""

    next_step = "Look who listens at the address: is it a RocketMQ or twinlog, and its remoting port?"


class ClientClosedError(RemotingError):
    """A blocking client or consumer is used before its block begins or after it ended, or it ended during the call.

    The service's own error, if it ended by one, is its `__cause__`.
    """

    next_step = "Use it inside its `with` block; end threads before the block does. Send again what may be missing."


class TlsFilesError(RemotingError, ValueError):
    """The TLS configuration cannot be used; the message names key and file. Correct it and start again."""

    next_step = "Correct what the message names."


class MemberAuthError(RemotingError):
    """A request or a response is not proven to be of a member of this group. Nothing was done for it."""

    next_step = "Name the group's secret: `open_admin(secret_file=...)` or TWINLOG_HA_SECRET_FILE."


class RemotingConnectError(RemotingError):
    """No connection to the address, or it was lost before the response. Try again, or another address.

    `sent`: the request may have arrived, and been carried out.
    """

    next_step = (
        "Check the address, and that somebody listens there. With `sent`, send again only what may be there twice."
    )

    def __init__(self, address: str, reason: str, *, sent: bool = False) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason
        self.sent = sent


class RemotingTimeoutError(RemotingError):
    """Connected, but no response in time. The request may or may not have been carried out."""

    next_step = "Send again if the message may be there twice, or look for it by its key; raise `timeout_ms` if it is too short."

    def __init__(self, address: str, code: int, timeout_ms: int) -> None:
        super().__init__(f"{address}: no answer to request {code} within {timeout_ms} ms")
        self.address = address
        self.code = code
        self.timeout_ms = timeout_ms


class RequestError(RemotingError):
    """An error code as the response: raised by handlers to send it, and by calls that receive an unexpected one."""

    next_step = (
        "See `code` and `remark`: the same is refused again, except for SYSTEM_BUSY (2) or SERVICE_NOT_AVAILABLE (14)."
    )

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{_name(code)}: {remark}")
        self.code = code
        self.remark = remark


class HeaderError(RequestError):
    """A field of the request header is missing or malformed. Answered with code 1; the connection stays open."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


def access_refusal(error: BaseException) -> str | None:
    """The reason of a refusal by access control, without Java's class names; None for other errors."""
    text = str(error)
    if _ACL_EXCEPTION not in text:
        return None
    words = text.partition(f"{_ACL_EXCEPTION}:")[2].strip() or text
    return words.rpartition(",")[0] or words


def _name(code: int) -> str:
    try:
        return f"{ResponseCode(code).name} ({int(code)})"
    except ValueError:
        return f"response code {code}"

"""Refusals of brokers, as errors that say what to do. Pure."""

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingError, RequestError

_FINAL = {
    ResponseCode.NO_PERMISSION,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
}
_ACL_WORDS = ("acl", "accesskey", "signature", "permission")
_NO_SQL = "does not support consumer to filter"


def is_final(error: RequestError) -> bool:
    """True when asking again changes nothing."""
    text = error.remark.lower()
    return error.code in _FINAL or _NO_SQL in text or any(word in text for word in _ACL_WORDS)


def refused(where: str, error: RemotingError) -> ReadRefusedError:
    """The error for what a broker or name server does not do; `where`: who, and what it was asked for."""
    if not isinstance(error, RequestError):
        return ReadRefusedError(f"{where}: {error}. Check that it runs and can be reached from here.")
    text = error.remark.lower()
    if _NO_SQL in text:
        todo = "Set enablePropertyFilter=true on the brokers, or filter by option tags, or in Spark."
    elif error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        todo = "The filter of option sql or tags is not understood there: correct it."
    elif error.code == ResponseCode.TOPIC_NOT_EXIST:
        todo = "Check the topic's name, and that it was not deleted."
    elif error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
        todo = "Create the group of option consumerGroup, or leave the option out."
    elif error.code == ResponseCode.NO_PERMISSION or any(word in text for word in _ACL_WORDS):
        todo = (
            "Check options accessKey and secretKey, that their account may SUB the topic and the group (option consumerGroup), "
            "and that topic and broker may be read."
        )
    elif error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        todo = "Check that option nameServer names name servers: brokers have other ports."
    else:
        todo = "Its log tells more."
    told = " ".join(str(error).split())  # In one line, as all errors: parsers of filters draw.
    return ReadRefusedError(f"{where}: it is refused: {told}. {todo}")

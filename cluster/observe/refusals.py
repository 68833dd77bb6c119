"""What access control says when it refuses, for people: without the names of Java's classes and the place in them.

`CODE: org.apache.rocketmq.acl.common.AclException: WORDS, PLACE`. Source: UtilAll.exceptionSimpleDesc (RocketMQ 4.9.8).
"""

_EXCEPTION = "AclException"


def access_refusal(error: BaseException) -> str | None:
    """Its words; None: it was not access control that refused."""
    text = str(error)
    if _EXCEPTION not in text:
        return None
    words = text.partition(f"{_EXCEPTION}:")[2].strip() or text
    return words.rpartition(",")[0] or words


def words_of(error: BaseException) -> str:
    """For where an error is one line among others."""
    refusal = access_refusal(error)
    return str(error) if refusal is None else f"access control refuses it: {refusal}"

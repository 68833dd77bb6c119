"""Commands of all kinds, for properties."""

import json

from hypothesis import strategies as st

from twinlog.cluster.remoting.command import (
    JSON,
    LANGUAGES,
    ROCKETMQ,
    RemotingCommand,
)

INT32 = st.integers(-(2**31), 2**31 - 1)


TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
COMMANDS = st.builds(
    RemotingCommand,
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=INT32,
    flag=INT32,
    ext=st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=20),
    body=st.binary(max_size=100),
    remark=st.none() | TEXT.filter(bool),
    version=st.integers(-(2**15), 2**15 - 1),
    language=st.sampled_from(LANGUAGES),
    serialize_type=st.sampled_from([JSON, ROCKETMQ]),
)


def json_frame(header: object, body: bytes = b"") -> bytes:
    """A frame without its length word."""
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(data).to_bytes(4) + data + body

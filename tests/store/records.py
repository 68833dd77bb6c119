"""Messages for tests: plain ones with defaults, and hypothesis strategies for any."""

import attrs
from hypothesis import strategies as st

from twinlog.store.log.commit_log import PutMessage
from twinlog.store.record.message import (
    BORN_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    STORE_HOST_V6,
    Message,
    body_crc,
    encode_message,
    host_bytes,
)
from twinlog.store.record.properties import parse_properties, tags_code

HOST_V4, HOST_V6 = host_bytes("127.0.0.1:10911"), host_bytes("[fe80::1]:10911")

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text("abTAGSKEY_=é长😀 ", min_size=1, max_size=8)
properties = st.dictionaries(names, names, max_size=16)
topics = st.text("abcXYZ019_-%", min_size=1, max_size=20)


@st.composite
def messages(draw, magics=(MAGIC_V1, MAGIC_V2)):
    """Any message that encodes, with the CRC of its body and the size of its record."""
    born_v6, store_v6 = draw(st.booleans()), draw(st.booleans())
    body = draw(st.binary(max_size=200))
    sys_flag = draw(st.sampled_from([0, 1, 2, 4, 8, 0xC, 0x301])) | born_v6 * BORN_HOST_V6 | store_v6 * STORE_HOST_V6
    message = Message(
        topic=draw(topics),
        queue_id=draw(int32),
        body=body,
        properties_raw="\x02".join(f"{n}\x01{v}" for n, v in draw(properties).items()).encode(),
        flag=draw(int32),
        sys_flag=sys_flag,
        queue_offset=draw(int64),
        phy_offset=draw(int64),
        born_timestamp=draw(int64),
        born_host=HOST_V6 if born_v6 else HOST_V4,
        store_timestamp=draw(int64),
        store_host=HOST_V6 if store_v6 else HOST_V4,
        reconsume_times=draw(int32),
        prepared_transaction_offset=draw(int64),
        body_crc=body_crc(body),
        magic=draw(st.sampled_from(magics)),
    )
    return attrs.evolve(message, size=len(encode_message(message)))


def put_message(topic="T1", body=b"hello", *, properties=b"UNIQ_KEY\x01id", **more):
    """A message as the broker hands it to the store."""
    code = more.pop("tags_code", tags_code(parse_properties(properties.decode()).get("TAGS", "")))
    fields = {"queue_id": 0, "flag": 0, "sys_flag": 0, "born_timestamp": 1, "born_host": HOST_V4, "store_host": HOST_V4}
    return PutMessage(topic=topic, body=body, properties=properties, tags_code=code, **(fields | more))


def record_size(message: PutMessage) -> int:
    """Bytes of its record, by the sum of its fields."""
    hosts = len(message.born_host) + len(message.store_host)
    return 75 + hosts + len(message.body) + len(message.topic.encode()) + len(message.properties)

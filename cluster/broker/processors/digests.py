"""20002, of twinlog only: digests of a range of the log, for members that compare theirs with it.

    request   start, end, blocksPerDigest     the digest of how many 64 KiB blocks each is, which lie at multiples of that
    answer    start, end, blocksPerDigest     `end` may be below what was asked for: ask on from there
    body      digests of 16 bytes, in order

Code 22: the log does not hold all of these bytes, or was cut meanwhile. Code 2: too many wait for digests. What digests mean, and
how fast they are computed, is said in store/range_digests.py.
"""

from cluster.broker.parts import BrokerParts
from cluster.remoting.codes import ResponseCode
from cluster.remoting.errors import RequestError
from cluster.remoting.headers import BlockDigests, BlockDigestsResponse, encode_header_fields
from cluster.remoting.server import Reply, Request
from store.range_digests import LogRangeError

DIGESTS_MAX = 4096  # In an answer: 64 KiB.
WAITING_MAX = 64


async def block_digests(broker: BrokerParts, header: BlockDigests, request: Request) -> Reply:
    """Tell them for at least a block; waits while others are served."""
    if not 0 <= header.start < header.end or header.blocks_per_digest < 1:
        range_text = f"bytes {header.start} to {header.end} in groups of {header.blocks_per_digest} blocks"
        raise RequestError(ResponseCode.INVALID_PARAMETER, f"no digests of {range_text}")
    digester = broker.store.range_digester
    if digester.waiting >= WAITING_MAX:
        raise RequestError(ResponseCode.SYSTEM_BUSY, f"{digester.waiting} requests wait for digests")
    try:
        found = await digester.answer(
            header.start, header.end, blocks_per_digest=header.blocks_per_digest, digests_max=DIGESTS_MAX
        )
    except LogRangeError as error:
        raise RequestError(ResponseCode.QUERY_NOT_FOUND, str(error)) from error
    except OSError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the log cannot be read: {error}") from error
    ext = encode_header_fields(BlockDigestsResponse(found.start, found.end, found.blocks_per_digest))
    return Reply(ext=ext, body=b"".join(found.digests))


HANDLERS = (block_digests,)

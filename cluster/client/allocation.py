"""Which of a topic's queues each member of a group reads. Pure. Source: AllocateMessageQueueAveragely (RocketMQ 4.9.8)."""

from collections.abc import Sequence

from twinlog.cluster.client.route import MessageQueue


def allocate(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """The queues of member `me`: a run of neighbours, as many as everybody else's or one more.

    Every member computes the same from the same queues and client ids, in whatever order it got them. Nothing for one
    who is not (yet) among the members.

    >>> queues = [MessageQueue("T", "broker-a", number) for number in range(5)]
    >>> [queue.queue_id for queue in allocate("one", queues, ["two", "one"])]
    [0, 1, 2]
    """
    ids = sorted(set(members))
    if me not in ids:
        return []
    ordered = sorted(set(queues))
    place = ids.index(me)
    share, rest = divmod(len(ordered), len(ids))
    start = place * share + min(place, rest)
    return ordered[start : start + share + (place < rest)]

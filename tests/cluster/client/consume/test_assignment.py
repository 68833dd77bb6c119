"""Allocation of queues: every member computes the same, each queue has one reader, and no member has two more than another."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.client.consume.assignment import allocate
from twinlog.cluster.remoting.route import MessageQueue

QUEUES = st.sets(
    st.builds(MessageQueue, st.just("T"), st.sampled_from(["broker-a", "broker-b", "broker-c"]), st.integers(0, 40))
)
MEMBERS = st.sets(st.text(min_size=1, max_size=6), min_size=1, max_size=30)


@given(QUEUES, MEMBERS, st.randoms(use_true_random=False))
def test_every_queue_has_one_reader_whatever_order_members_hear_of(queues, members, random):
    shares = []
    for me in members:
        mixed_queues, mixed_members = list(queues), list(members)
        random.shuffle(mixed_queues)
        random.shuffle(mixed_members)
        shares.append(allocate(me, mixed_queues, mixed_members))
    assert sorted(queue for share in shares for queue in share) == sorted(queues)
    sizes = {len(share) for share in shares}
    assert max(sizes) - min(sizes) <= 1


@given(QUEUES, MEMBERS)
def test_shares_are_neighbours_and_the_first_members_have_more(queues, members):
    ordered = sorted(queues)
    joined = [queue for me in sorted(members) for queue in allocate(me, ordered, list(members))]
    assert joined == ordered
    sizes = [len(allocate(me, ordered, list(members))) for me in sorted(members)]
    assert sizes == sorted(sizes, reverse=True)


def test_one_who_is_no_member_has_nothing():
    assert allocate("me", [MessageQueue("T", "b", 0)], ["other"]) == []


def test_as_rocketmq_does_it():
    """Eight queues, three members: 3, 3 and 2 (AllocateMessageQueueAveragely)."""
    queues = [MessageQueue("T", "b", number) for number in range(8)]
    shares = [[queue.queue_id for queue in allocate(me, queues, ["c", "a", "b"])] for me in "abc"]
    assert shares == [[0, 1, 2], [3, 4, 5], [6, 7]]

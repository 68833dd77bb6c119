"""Held pulls and a log that is cut."""

import trio

from cluster.broker.long_polling import HeldPull, PullRequestHoldService


async def test_a_pull_behind_the_end_of_its_queue_is_not_held_any_more(autojump_clock, nursery):
    """The log was cut: the consumer is to hear that its offset is beyond the queue, not to wait until that has grown so far."""
    ends = {("T", 0): 5, ("T", 1): 5}
    service = PullRequestHoldService(trio.current_time, lambda topic, queue_id: ends[topic, queue_id])
    nursery.start_soon(service.run)
    woken = []
    for queue_id in (0, 1):
        deadline, run_again = trio.current_time() + 60, lambda queue_id=queue_id: woken.append(queue_id)
        service.hold(HeldPull("T", queue_id, 5, None, deadline, "connection", run_again))
    await trio.sleep(20)
    assert woken == []
    ends["T", 0] = 3
    await trio.sleep(6)
    assert woken == [0]
    assert len(service) == 1

import trio

from twinlog.cluster.remoting.log_limit import LogLimit


async def test_a_line_says_how_many_were_left_out(autojump_clock):
    limit = LogLimit(5.0)
    assert [limit.due("a") for _ in range(4)] == [0, None, None, None]
    assert limit.due("b") == 0
    await trio.sleep(5)
    assert [limit.due("a"), limit.due("a")] == [3, None]


async def test_keys_that_anybody_makes_up_fill_no_memory(autojump_clock):
    limit = LogLimit()
    assert [limit.due(str(number)) for number in range(2500)] == [0] * 2500
    assert len(limit._told) <= 1000

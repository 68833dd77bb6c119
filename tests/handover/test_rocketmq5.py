"""The same with RocketMQ 5.3.3, in fewer turns, because its start takes longer."""

from tests.handover.chain import KILL, ROCKETMQ_5, STOP, TWINLOG, Turn
from tests.handover.test_handover import (  # noqa: F401 - they run here again, for this module's turns.
    test_delayed_messages_fall_due,
    test_finds_messages_by_key_and_by_id,
    test_finds_offsets_by_time,
    test_knows_consumer_offsets,
    test_retries_come_back,
    test_serves_each_message_where_its_producer_was_told,
    test_the_directory_is_sound_in_the_end,
    test_transactions_end_as_they_should,
)

TURNS = (Turn(TWINLOG, STOP), Turn(ROCKETMQ_5, KILL), Turn(TWINLOG, STOP))

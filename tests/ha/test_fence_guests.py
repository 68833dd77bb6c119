"""Who waits in the lobby, unknown yet, while a master's epoch changes: what it says was said to the master of the old epoch."""

import trio

from tests.helpers import open_store, put
from twinlog.ha.config import HAConfig
from twinlog.ha.service import HAService
from twinlog.ha.wire.protocol import ACK


async def test_a_guest_of_the_old_epoch_is_not_served_in_the_new_one(nursery, tmp_path):
    """It compared its log with the old master's history, and would acknowledge without the new one."""
    store = open_store(tmp_path / "master")
    end = put(store, b"first")
    ha = HAService(store, HAConfig(listen_host="127.0.0.1", listen_port=0), lambda: (), lambda: None)
    port = await nursery.start(ha.run)
    with trio.fail_after(10):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(ACK.pack(end))
        while not any(guest.asked_at is not None for guest in ha.connection_admission.pending.connections.values()):
            await trio.sleep(0.01)
        ha.fence("it has promised epoch 1 to itself")
        ha.unfence(synchronous=True)
        ha.members_changed(("127.0.0.1",))
        await trio.sleep(0.1)
        assert ha.group_transfer.slaves == ()
        await stream.aclose()
        again = await trio.open_tcp_stream("127.0.0.1", port)
        await again.send_all(ACK.pack(end))
        while not ha.group_transfer.slaves:
            await trio.sleep(0.01)
        await again.aclose()

"""A member's log after a power cut."""

import shutil

import trio


async def lose_tail(master, slave):
    """Three messages are at both, and the first one is at the master when its machine is back. Returns where the log ended."""
    master.put(3)
    assert await master.is_acknowledged()
    end = master.store.max_offset
    await slave.kill()
    await master.kill()
    cut_log(master, 206)
    master.boot_id = "boot 2"
    await slave.start()
    await master.start()
    await trio.sleep(10)
    return end


def cut_log(node, end: int) -> None:
    """What a power cut does to bytes that no disk has."""
    (file,) = (node.root / "commitlog").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:end] + bytes(len(data) - end))
    for name in ("consumequeue", "index"):
        shutil.rmtree(node.root / name, ignore_errors=True)
    (node.root / "checkpoint").unlink(missing_ok=True)
    (node.side / "recovery-point").unlink(missing_ok=True)  # It tells of what is on the disk alone.

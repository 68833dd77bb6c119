"""Damage in the log itself: no sound message is lost, no broken one is served, and stale records do not come back."""

import random
import shutil

import pytest
import trio
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.store import golden
from tests.store.message_stores import make, opened
from tests.store.records import put_message, record_size
from twinlog.store.config import BrokerRole
from twinlog.store.errors import MessageFormatError
from twinlog.store.record.message import MAGIC_V1, decode_message
from twinlog.store.record.resync import next_record
from twinlog.store.recovery.queues import QueueRecovery
from twinlog.store.recovery.side_files import SideFiles

FILE_SIZE = 1 << 14
BODY = bytes(1_000)
SIZE = record_size(put_message(body=BODY))
PER_FILE = (FILE_SIZE - 8) // SIZE
COUNT = 50


class Clock:
    """Time that the test sets."""

    def __init__(self):
        self.now = 1_700_000_000_000

    def __call__(self):
        return self.now


def small(root, clock=None, **options):
    """A store with short files, open."""
    store = make(root, mapped_file_size_commit_log=FILE_SIZE, **options)
    if clock is not None:
        store.hooks.now_ms = clock
    store.load()
    return store


def fill(store, numbers):
    """Messages to two queues, each with its number; where they went."""
    placed = []
    for number in numbers:
        body = b"%08d" % number + random.Random(number).randbytes(992)
        placed += store.put([put_message(body=body, queue_id=number % 2)])
    store.dispatch_pending()
    return placed


def crash(store):
    store.dispatch_pending()
    store._release()


def served(store):
    """The numbers that consumers get, by queue and queue offset."""
    found = {}
    for _, queue_id, queue in store.queues():
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = store.get_message("T1", queue_id, offset, 32, None)
            data = b"".join(map(bytes, result.buffers))
            while data:
                message = decode_message(data)  # With its CRC: no broken message is served.
                found[queue_id, message.queue_offset] = int(message.body[:8])
                data = data[message.size :]
            assert result.next_offset > offset
            offset = result.next_offset
    return found


def expected(numbers):
    return {(number % 2, number // 2): number for number in numbers}


def write(root, phy_offset, data):
    """Put these bytes into the log, over the end of files."""
    while data:
        position = phy_offset % FILE_SIZE
        with (root / "commitlog" / f"{phy_offset - position:020}").open("r+b") as file:
            file.seek(position)
            file.write(data[: FILE_SIZE - position])
        phy_offset, data = phy_offset + FILE_SIZE - position, data[FILE_SIZE - position :]


@pytest.fixture
def crashed(tmp_path):
    store = small(tmp_path)
    fill(store, range(COUNT))
    crash(store)
    return tmp_path


def place(number):
    """Where a message lies."""
    return number // PER_FILE * FILE_SIZE + number % PER_FILE * SIZE


END = place(COUNT - 1) + SIZE


@pytest.mark.parametrize("number", [0, 1, 17, PER_FILE - 1, PER_FILE, COUNT - 2])
@pytest.mark.parametrize("at", [4, 200])
def test_messages_behind_damage_stay(crashed, number, at):
    write(crashed, place(number) + at, b"damage")
    for _ in range(2):
        store = small(crashed)
        assert served(store) == expected(set(range(COUNT)) - {number})
        assert store.max_offset == END
        assert store.damaged.overlaps(place(number), place(number) + SIZE)
        assert store.damaged.total < SIZE + FILE_SIZE - PER_FILE * SIZE + 1
        crash(store)
    store = small(crashed)
    fill(store, range(COUNT, COUNT + 9))
    trio.run(store.close)
    store = small(crashed)
    assert served(store) == expected(set(range(COUNT + 9)) - {number})
    assert store.damaged.overlaps(place(number), place(number) + SIZE)
    crash(store)


def test_one_line_says_what_was_lost(crashed, capsys):
    write(crashed, place(17) + 300, b"damage")
    crash(small(crashed))
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "are kept" in line)
    for words in (f"offset={place(17)}", f"bytes={SIZE}", "its body does not match its CRC", "advice="):
        assert words in line


def test_damage_over_the_end_of_files(crashed):
    """Two files are lost but for their ends."""
    write(crashed, place(20), bytes(place(PER_FILE * 3 + 3) - place(20)))
    store = small(crashed)
    assert served(store) == expected([*range(20), *range(PER_FILE * 3 + 3, COUNT)])
    assert list(store.damaged) == [(place(20), place(PER_FILE * 3 + 3))]
    crash(store)


def test_lost_queues_keep_their_numbers_over_damage(crashed):
    """The unit of the damaged message becomes a blank."""
    write(crashed, place(17) + 300, b"damage")
    before = golden.queue_files(crashed)
    for path in (crashed / "consumequeue").rglob("0*"):
        if path.is_file():
            path.unlink()
    store = small(crashed)
    assert served(store) == expected(set(range(COUNT)) - {17})
    after = golden.queue_files(crashed)
    changed = [path for path in before if before[path] != after[path]]
    assert changed == [f"T1/1/{0:020}"]
    assert after[changed[0]][8 * 20 : 9 * 20] == bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)
    crash(store)


def left_overs(root, *, clock, cut_at, again):
    """As RocketMQ leaves a log: cut at a message, the bytes behind it not cleared, and `again` messages written since."""
    store = small(root, clock)
    fill(store, range(COUNT))
    crash(store)
    before = golden.log_files(root / "commitlog")
    for start in before:
        if start > place(cut_at):
            (root / "commitlog" / f"{start:020}").unlink()
    write(root, place(cut_at), bytes(FILE_SIZE - place(cut_at) % FILE_SIZE))
    store = small(root, clock)
    assert store.max_offset == place(cut_at)
    clock.now += 60_000
    fill(store, range(1000 + cut_at, 1000 + cut_at + again))
    crash(store)
    end = place(cut_at + again)
    rest = before[place(cut_at) // FILE_SIZE * FILE_SIZE][end % FILE_SIZE :]
    write(root, end, b"\xee" * 5 + rest[5:])  # Where new bytes end within old ones.
    return end


@pytest.mark.parametrize("side_files", [True, False])
@pytest.mark.parametrize("again", [1, 2, 3])
def test_left_overs_of_a_cut_do_not_come_back(tmp_path, again, side_files):
    """They are older than what lies before them, or their numbers are taken; what they were is kept aside."""
    clock = Clock()
    end = left_overs(tmp_path, clock=clock, cut_at=33, again=again)
    if not side_files:
        for path in (tmp_path / "twinlog").glob("recovery-point"):
            path.unlink()
    assert next_record(lambda at, size: golden.log_files(tmp_path / "commitlog")[at - at % FILE_SIZE][at % FILE_SIZE :][:size],
                       end, place(33) // FILE_SIZE * FILE_SIZE + FILE_SIZE, FILE_SIZE) is not None  # fmt: skip
    store = small(tmp_path, clock)
    assert store.max_offset == end
    assert len(store.damaged) == 0
    numbers = [*range(33), *range(1033, 1033 + again)]
    assert sorted(served(store).values()) == numbers
    (kept,) = (path for path in (tmp_path / "twinlog" / "cut").iterdir() if path.name.startswith(f"{end:020}"))
    assert b"%08d" % (33 + again + 1) in kept.read_bytes()
    assert store.commit_log.files.files[-1].is_clear_from(end % FILE_SIZE)
    crash(store)


def test_left_overs_whose_numbers_are_taken_do_not_come_back_though_the_clock_went_back(tmp_path):
    clock = Clock()
    left_overs(tmp_path, clock=clock, cut_at=33, again=0)
    store = small(tmp_path, clock)  # Nothing was written since: these messages were RocketMQ's to cut, and are sound.
    assert served(store) == expected(set(range(PER_FILE * (33 // PER_FILE + 1))) - {33})
    crash(store)


def test_older_messages_behind_damage_stay_when_the_log_goes_on_behind_them(tmp_path):
    """The clock went back: such messages are not stale, because a cut leaves no later files."""
    clock = Clock()
    store = small(tmp_path, clock)
    fill(store, range(20))
    clock.now -= 3_600_000
    fill(store, range(20, COUNT))
    crash(store)
    write(tmp_path, place(19) + 300, b"damage")
    store = small(tmp_path, clock)
    assert served(store) == expected(set(range(COUNT)) - {19})
    crash(store)


@pytest.mark.parametrize(("is_known", "size"), [(False, 10), (True, 1_300)])
def test_what_rocketmq_wrote_where_it_cut_the_log_at_damage_is_served(tmp_path, is_known, size):
    """It cuts below our recovery point without clearing anything, and what it writes then may end before that point."""
    clock, sound = Clock(), 44
    store = small(tmp_path / "ours", clock, mapped_file_size_consume_queue=6_000)
    damaged = fill(store, range(COUNT))[sound].phy_offset
    trio.run(store.close)
    write(tmp_path / "ours", damaged + 200, b"\xff" * 50)
    if is_known:
        store = small(tmp_path / "ours", clock, mapped_file_size_consume_queue=6_000)
        store.get_message("T1", 0, sound // 2, 1, None)
        assert store.damaged.total
        trio.run(store.close)
    other = small(tmp_path / "other", clock, mapped_file_size_consume_queue=6_000)
    fill(other, range(sound))
    clock.now += 1_000
    other.put([put_message(body=b"%08d" % n + bytes(size), queue_id=n % 2) for n in (sound, sound + 1)])
    other.dispatch_pending()
    end, numbers = other.max_offset, served(other)
    trio.run(other.close)
    for path in (tmp_path / "other").rglob("0" * 10 + "*"):
        data = path.read_bytes().rstrip(b"\0")
        with (tmp_path / "ours" / path.relative_to(tmp_path / "other")).open("r+b") as file:
            file.write(data)
    shutil.copy(tmp_path / "other" / "checkpoint", tmp_path / "ours" / "checkpoint")
    store = small(tmp_path / "ours", clock, mapped_file_size_consume_queue=6_000)
    assert (store.max_offset, served(store)) == (end, numbers)
    store.put([put_message(body=b"%08d" % COUNT, queue_id=0)])
    store.dispatch_pending()
    assert set(served(store).values()) - set(numbers.values()) == {COUNT}, (
        "a unit that leads behind the end hides what follows"
    )
    crash(store)


@pytest.mark.parametrize("role", [BrokerRole.SLAVE, BrokerRole.SYNC_MASTER])
def test_who_has_others_takes_from_them_again_what_a_crash_damaged(crashed, role):
    """A slave's log must equal its master's, byte for byte.

    A master whose group acknowledges together would go on with a record that no other member has, and that no slave can take.
    """
    write(crashed, place(17) + 300, b"damage")
    store = make(crashed, mapped_file_size_commit_log=FILE_SIZE, broker_role=role)
    store.is_replicated = role is not BrokerRole.SLAVE
    store.load()
    assert store.max_offset == place(17)
    assert served(store) == expected(range(17))
    (kept,) = (crashed / "twinlog" / "cut").iterdir()
    assert b"%08d" % (COUNT - 1) in kept.read_bytes()
    crash(store)


@pytest.mark.parametrize("role", [BrokerRole.SLAVE, BrokerRole.SYNC_MASTER])
def test_what_a_lone_master_kept_behind_damage_stays_when_others_have_come(crashed, role):
    """It crashed, kept what lies behind the damage, and answered producers. It crashes again, and has a group by then."""
    write(crashed, place(17) + 300, b"damage")
    crash(small(crashed))
    (crashed / "twinlog" / "recovery-point").unlink(missing_ok=True)
    for _ in range(2):  # What was kept once stays kept.
        store = make(crashed, mapped_file_size_commit_log=FILE_SIZE, broker_role=role)
        store.is_replicated = role is not BrokerRole.SLAVE
        store.load()
        assert served(store) == {key: number for key, number in expected(range(COUNT)).items() if number != 17}
        assert list(store.damaged) == [(place(17), place(18))]
        crash(store)
    assert not (crashed / "twinlog" / "cut").exists()
    write(crashed, place(23) + 300, b"damage")  # This is new.
    store = make(crashed, mapped_file_size_commit_log=FILE_SIZE, broker_role=role)
    store.is_replicated = role is not BrokerRole.SLAVE
    store.load()
    assert store.max_offset == place(23)
    crash(store)


async def test_a_cut_ends_the_memory_of_damage_that_was_kept(crashed):
    write(crashed, place(17) + 300, b"damage")
    crash(small(crashed))
    side = SideFiles(crashed / "twinlog")
    assert side.load_kept_damage() == ((place(17), place(18)),)
    store = small(crashed, broker_role=BrokerRole.SLAVE)
    await store.truncate(place(20), "test")
    assert side.load_kept_damage() == ((place(17), place(18)),)
    await store.truncate(place(17), "test")
    assert side.load_kept_damage() == ()
    assert not (crashed / "twinlog" / "kept-damage").exists()
    crash(store)


@pytest.mark.parametrize("at_hand", [2, 4096])
def test_without_a_checkpoint_no_number_is_given_twice_and_not_all_units_are_held_in_memory(
    crashed, monkeypatch, at_hand
):
    for name in ("checkpoint", "twinlog/recovery-point"):
        (crashed / name).unlink(missing_ok=True)
    monkeypatch.setattr("twinlog.store.recovery.queues._REMEMBERED_MAX", at_hand)
    held = []

    def keep_numbers(recovery, end, keep=QueueRecovery.keep_numbers):
        held.extend(len(units) // 20 for _, units in recovery.rewound.values())
        keep(recovery, end)

    monkeypatch.setattr(QueueRecovery, "keep_numbers", keep_numbers)
    write(crashed, place(COUNT - 2), bytes(SIZE))  # The last of its queue; one of the other queue follows.
    store = small(crashed)
    assert max(held) == min(at_hand, COUNT // 2)
    assert [queue.max_offset for _, _, queue in store.queues()] == [COUNT // 2] * 2
    crash(store)


def test_what_is_cut_is_kept(crashed):
    write(crashed, END + 700, b"something else")
    store = small(crashed)
    assert store.max_offset == END
    (kept,) = (crashed / "twinlog" / "cut").iterdir()
    assert kept.name.startswith(f"{END:020}-")
    assert kept.read_bytes() == bytes(700) + b"something else"
    crash(store)
    crash(small(crashed))
    assert len(list((crashed / "twinlog" / "cut").iterdir())) == 1


@given(seed=st.integers(0, 1 << 32), holes=st.integers(1, 4), lost_point=st.booleans())
@settings(max_examples=25, deadline=None)
def test_random_damage(tmp_path_factory, seed, holes, lost_point):
    """Whatever is damaged: every sound message is served, no other, and so it stays."""
    root, rng = tmp_path_factory.mktemp("store"), random.Random(seed)
    store = small(root)
    placed = fill(store, range(COUNT))
    crash(store)
    ranges = []
    for _ in range(holes):
        start = rng.randrange(END)
        size = rng.choice([1, 20, 700, 5000])
        data = bytes(size) if rng.random() < 0.5 else rng.randbytes(size)
        ranges.append((start, min(END, start + size)))
        write(root, start, data[: END - start])
    if lost_point:
        for path in (root / "twinlog").glob("recovery-point"):
            path.unlink()
    files = golden.log_files(root / "commitlog")
    sound = set()
    for number, result in enumerate(placed):
        raw = files[result.phy_offset // FILE_SIZE * FILE_SIZE][result.phy_offset % FILE_SIZE :][: result.size]
        try:
            message = decode_message(raw)
        except MessageFormatError:
            continue
        assume(message.queue_id == number % 2 and message.queue_offset == number // 2)  # Nothing can tell.
        if message.phy_offset == result.phy_offset and message.topic == "T1":
            sound.add(number)
    untouched = {n for n, r in enumerate(placed) if all(r.end_offset <= a or b <= r.phy_offset for a, b in ranges)}
    assert untouched <= sound
    for _ in range(2):
        store = small(root)
        found = served(store)
        assert untouched <= set(found.values()) <= sound
        assert set(found.items()) <= set(expected(range(COUNT)).items())
        crash(store)


@pytest.mark.parametrize("after_crash", [True, False])
def test_a_log_that_ends_anywhere_in_its_last_two_messages(tmp_path, after_crash):
    """Zero from any byte on: all whole messages are there, no other, and the store goes on."""
    store = opened(tmp_path / "all", mapped_file_size_commit_log=4096)
    # Only properties have no check at all: the disk tears them where its sectors end, see _is_torn.
    placed = [store.put([put_message(body=b"%03d" % n * 4, queue_id=n % 2, properties=b"")])[0] for n in range(4)]
    store.dispatch_pending()
    if after_crash:
        crash(store)
    else:
        trio.run(store.close)
    whole = (tmp_path / "all" / "commitlog" / f"{0:020}").read_bytes()
    queues = golden.queue_files(tmp_path / "all")
    for end in range(placed[2].phy_offset, placed[3].end_offset + 1):
        (tmp_path / "all" / "commitlog" / f"{0:020}").write_bytes(whole[:end].ljust(4096, b"\0"))
        for path, content in queues.items():
            (tmp_path / "all" / "consumequeue" / path).write_bytes(content)
        for path in (tmp_path / "all" / "twinlog").glob("recovery-point"):
            path.unlink()
        (tmp_path / "all" / "abort").unlink(missing_ok=True)
        if after_crash:
            (tmp_path / "all" / "abort").touch()
        store = make(tmp_path / "all", mapped_file_size_commit_log=4096)
        store.load()
        kept = sum(result.end_offset - 2 <= end for result in placed)  # Its last two bytes are zero.
        assert store.max_offset == placed[kept - 1].end_offset
        assert [store.queue("T1", n).max_offset for n in (0, 1)] == [-(-kept // 2), kept // 2]
        assert store.put([put_message(queue_id=0)])[0].queue_offset == -(-kept // 2)
        crash(store)


@pytest.mark.parametrize("room", [*range(18), *range(108, 124)])
def test_messages_roll_over_at_every_distance_from_the_end(tmp_path, room):
    """A message that leaves less than 8 bytes goes to the next file behind a blank, and is found there after a crash."""
    small_size = record_size(put_message(body=b"12345678"))
    store = make(tmp_path, mapped_file_size_commit_log=4096)
    store.load()
    first = put_message(body=bytes(4096 - room - record_size(put_message(body=b""))))
    (result,) = store.put([first])
    if result.phy_offset < 0:  # It fits no file.
        assert room < 8
        crash(store)
        return
    assert result.end_offset == 4096 - room
    (result,) = store.put([put_message(body=b"12345678")])
    assert result.phy_offset == (4096 - room if room >= small_size + 8 else 4096)
    crash(store)
    if result.phy_offset == 4096:
        raw = (tmp_path / "commitlog" / f"{0:020}").read_bytes()[4096 - room :]
        assert raw == (room.to_bytes(4) + b"\xcb\xd4\x31\x94").ljust(room, b"\0")
    store = make(tmp_path, mapped_file_size_commit_log=4096)
    store.load()
    assert store.max_offset == result.end_offset
    assert [store.queue("T1", 0).unit(n).phy_offset for n in (0, 1)] == [0, result.phy_offset]
    assert decode_message(store.message_at(result.phy_offset)).magic == MAGIC_V1
    crash(store)

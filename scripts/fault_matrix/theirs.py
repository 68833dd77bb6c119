"""Rows for the real RocketMQ 4.9.7: one master, one slave, a name server, SYNC_MASTER with SYNC_FLUSH, both at their safest.

Faults, rounds, clients, history and oracles are those of the row for ours. Where RocketMQ has no command for what a person wants,
the person does by hand what its documentation says (theirs_group.py). What comes out is a result, never a failure of the run.

Ours have three members, and promise to go on within 10 s. RocketMQ promises no time, and with one slave SEND_OK needs it back: so
oracle F does not judge it, unless nothing is acknowledged any more. The times are in the results all the same.
"""

from attrs import evolve, frozen

from scripts.fault_matrix import fault, fault_disk, fault_link, fault_net, fault_stranger, theirs_faults
from scripts.fault_matrix.fault import Fault
from scripts.fault_matrix.rows import ROWS, Row

MEMBERS = 2


@frozen(kw_only=True)
class Theirs:
    """`expected`: what its source, or its issues, let one expect; the results say what came of it."""

    row: Row
    expected: str


def _theirs(number: int, level: str, faults: tuple[type[Fault], ...], expected: str, **changes: object) -> Theirs:
    """Of our row of that number, the level being the same if we have it."""
    own = [row for row in ROWS if row.number == number]
    fresh = Row(number=number, name="", faults=faults, level=level)
    row = next((each for each in own if each.level == level), own[0] if own else fresh)
    changed = {
        "oracles": row.oracles.replace("F", ""),
        "faults": faults,
        "level": level,
        "members": MEMBERS,
        "namesrvs": 1,
        "settings": {},
        "planted": "",
        **changes,
    }
    return Theirs(row=evolve(row, **changed), expected=expected)  # type: ignore[arg-type]


THEIRS: tuple[Theirs, ...] = (
    _theirs(
        1,
        "L2",
        (theirs_faults.KillMaster, theirs_faults.KillSlave, theirs_faults.KillNameServer),
        "holds: what was written is in the page cache, and a slave that comes back goes on where it was",
        name="kill -9 of master, slave and name server, thrice in a row",
    ),
    _theirs(
        2,
        "L2",
        (fault.PauseMasterShort, fault.PauseMasterLong, fault.PauseSlaveLong, fault.PauseMasterAndFailOver),
        "after the failover the old master follows with a tail that the new one never had: nobody compares contents",
    ),
    _theirs(
        3,
        "L3",
        (fault_disk.PowerCutMaster, fault_disk.PowerCutSlave),
        "the slave is sent what the master has not flushed yet; a master that lost that goes on below its slave",
    ),
    _theirs(
        3,
        "L1",
        (fault_disk.PowerCutMaster,),
        "as at L3, with an asynchronous master",
    ),
    _theirs(
        4,
        "L3",
        (fault_disk.PowerCutAll,),
        "nothing acknowledged is lost, as the master has flushed it; members may differ behind that",
    ),
    _theirs(
        5,
        "L2",
        (
            fault_net.MasterFromSlaves,
            fault_net.MasterFromAll,
            fault_net.MasterFromClients,
            fault_net.OneSlaveOff,
            fault_net.MasterFromAllAndFailOver,
            fault_net.MasterFromSlavesAndFailOver,
        ),
        "a master without its slave acknowledges nothing; the one that comes back after a failover keeps another tail",
    ),
    _theirs(
        6,
        "L2",
        (fault_net.AcksLost, fault_net.DataLost, fault_net.AcksLostAndFailOver),
        "as with a partition both ways",
    ),
    _theirs(9, "L2", (fault_link.SlowAndTiny, fault_link.HalfClose), "holds: a slave takes whole frames only"),
    _theirs(
        10,
        "L2",
        (fault_link.Flip,),
        "the slave appends what it is sent, acknowledges it, and nobody is told",
    ),
    _theirs(
        11,
        "L2",
        (theirs_faults.LogAtRest,),
        "a member cuts its log where it is damaged, though the other one has the rest",
        name="damage at rest: a bit, or a page, of a stopped member's log",
        rounds=3,
    ),
    _theirs(
        13,
        "L3",
        (theirs_faults.SyncFails, theirs_faults.SyncsFailThenPowerCut),
        "a flush that fails is logged, and counts as done: SEND_OK for what is on no disk",
        name="syncs say EIO; then the power is cut",
        disks=True,
    ),
    _theirs(
        17,
        "L2",
        (fault_stranger.ForgedAcks,),
        "whoever reaches the HA port acknowledges for the slave, and producers hear SEND_OK",
        name="forged acknowledgements",
        rounds=2,
    ),
    _theirs(
        20,
        "L1",
        (fault_disk.LastOneStanding,),
        "nothing acknowledged is lost: it is flushed, and the slave was away",
    ),
    _theirs(
        18,
        "L2",
        (fault.Storm,),
        "holds while each change is made by hand, one after the other, with both members stopped in order",
    ),
)

LEFT_OUT: dict[int, str] = {
    7: "needs five members that choose among each other; RocketMQ's classic groups have a master and nobody who chooses",
    8: "links that stall one after the other need several slaves; with one it is row 6",
    12: "needs a file that a crash of our store leaves; theirs are mapped, and row 3 cuts their power",
    14: "not tried",
    15: "it has no lease that could end while a disk hangs; not tried",
    16: "it has no lease that a clock could spoil; not tried",
    19: "name servers keep no state of a role change there; not tried",
    21: "is about the two systems side by side",
    22: "it has no lease below which somebody could be taken for dead; not tried",
    23: "its classic groups have no record of members that could name an address; not tried",
    24: "as row 23",
    25: "as row 23",
    26: "its classic groups elect nobody; with its controller it is in scripts/bench failover",
    **dict.fromkeys(range(27, 32), "as row 26"),
    **dict.fromkeys(range(32, 37), "it keeps no record in etcd; its controller is in scripts/bench failover-etcd"),
}


def their_rows(numbers: tuple[int, ...]) -> list[Row]:
    """Those with these numbers; all of them without any. Raises LookupError, with the reason, for one that is left out."""
    for number in numbers:
        if number in LEFT_OUT:
            raise LookupError(f"row {number} is not for RocketMQ: {LEFT_OUT[number]}")
        if number not in {each.row.number for each in THEIRS}:
            raise LookupError(f"there is no row {number}")
    return [each.row for each in THEIRS if not numbers or each.row.number in numbers]


def expected_of(row: Row) -> str:
    """What was expected of it."""
    return next(each.expected for each in THEIRS if each.row.key == row.key)

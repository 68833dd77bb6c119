"""The matrix: which fault, under which promise, judged by which oracles. Numbers are those of the plan."""

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from scripts.fault_matrix import fault
from scripts.fault_matrix import fault_clock as clock
from scripts.fault_matrix import fault_disk as disk
from scripts.fault_matrix import fault_kept as kept
from scripts.fault_matrix import fault_kept_places as kept_places
from scripts.fault_matrix import fault_link as link
from scripts.fault_matrix import fault_load as load
from scripts.fault_matrix import fault_mixed as mixed
from scripts.fault_matrix import fault_move as move
from scripts.fault_matrix import fault_net as net
from scripts.fault_matrix import fault_partition as partition
from scripts.fault_matrix import fault_points as points
from scripts.fault_matrix import fault_refusal as refusal
from scripts.fault_matrix import fault_rest as rest
from scripts.fault_matrix import fault_stranger as stranger
from scripts.fault_matrix import fault_torn as torn
from scripts.fault_matrix import fault_unattended as unattended
from scripts.fault_matrix import fault_unattended_places as places
from scripts.fault_matrix.fault import Fault

SECONDS_TO_RECOVER = 10.0
# A master whose machine died, and that lacks bytes which other members have, is fenced until somebody chooses one of those.
WITHOUT_F = "ABCDEGP"
WITH_H = "ABCDEFGHP"
UNATTENDED = "ABCDEFGIJKP"
KEPT = "ABCDEFGIJKLP"


@frozen(kw_only=True)
class Row:
    """`only_tail`: the level does not survive the fault, and a tail may be lost, nothing else. `recovers`: without an operator,
    within SECONDS_TO_RECOVER of healing. `planted`: a fault put into the product that this row must notice (planted.py).
    """

    number: int
    name: str
    faults: Sequence[type[Fault]]
    level: str
    oracles: str = "ABCDEFGP"
    only_tail: bool = False
    net: str = "loopback"
    members: int = 3
    namesrvs: int = 1
    etcds: Sequence[int] = ()  # How many members of etcd there are, by the seed; none: no etcd.
    rounds: int = 3
    calm_s: float = 0.0  # Of traffic before each fault.
    disks: bool = False
    shim: bool = False
    proxied: bool = False
    points: bool = False
    mixed: bool = False  # A pair of RocketMQ's and ours.
    consumers: int = 1
    producers: int = 4
    pace_s: float = 0.004  # Between two messages of a producer.
    image_mb: int = 192
    is_long: bool = False  # It has no short form.
    seconds_max: float = 600.0  # Clients end then, whatever happens.
    settings: Mapping[str, str] = field(factory=dict)
    namesrv_settings: Mapping[str, str] = field(factory=dict)
    planted: str = ""

    @property
    def key(self) -> str:
        """Number and level: some rows are run under several promises."""
        return f"{self.number}-{self.level}"

    @property
    def recovers(self) -> bool:
        return "F" in self.oracles

    @property
    def needs(self) -> tuple[str, ...]:
        """Rights and tools."""
        found = {need for each in self.faults for need in each.needs}
        found |= {"cc"} if self.shim else set()
        found |= {"go"} if "P" in self.oracles else set()
        found |= {"etcd"} if self.etcds else set()
        return tuple(sorted(found | ({"root"} if self.net == "namespaces" or self.disks else set())))


ROWS: tuple[Row, ...] = (
    Row(
        number=1,
        name="kill -9 of master, slave and name server, thrice in a row, at any moment and at named places",
        faults=(
            fault.KillMaster,
            fault.KillSlave,
            fault.KillNameServer,
            points.KillAtPoint,
            points.KillAtPoint,
            points.KillInCut,
        ),
        level="L2",
        points=True,
        settings=points.SETTINGS,
        planted="recovery gives up the last record",
    ),
    Row(
        number=2,
        name="SIGSTOP shorter and longer than the lease; a failover meanwhile",
        faults=(fault.PauseMasterShort, fault.PauseMasterLong, fault.PauseSlaveLong, fault.PauseMasterAndFailOver),
        level="L2",
        planted="a refusal is an OK",
    ),
    Row(
        number=3,
        name="power cut of one node",
        faults=(disk.PowerCutMaster, disk.PowerCutSlave),
        level="L3",
        oracles=WITHOUT_F,
        disks=True,
        planted="what a power cut took is taken from all",
    ),
    Row(
        number=3,
        name="power cut of one node",
        faults=(disk.PowerCutMaster,),
        level="L1",
        oracles=WITHOUT_F,
        disks=True,
        consumers=0,
        planted="an OK does not wait for the disk",
    ),
    Row(
        number=3,
        name="power cut of one node: a tail may be lost, nothing else",
        faults=(disk.PowerCutMaster,),
        level="L0",
        only_tail=True,
        disks=True,
        members=1,
        consumers=0,
        oracles="ABCEFG",
        calm_s=5.0,  # What is older than TAIL_S_MAX has to stay.
        planted="recovery gives up the whole log",
    ),
    Row(
        number=4,
        name="power cut of all nodes at once",
        faults=(disk.PowerCutAll,),
        level="L3",
        oracles=WITHOUT_F,
        disks=True,
        planted="a flush is a word",
    ),
    Row(
        number=5,
        name="partition, both ways; a failover meanwhile",
        faults=(
            net.MasterFromSlaves,
            net.MasterFromAll,
            net.MasterFromClients,
            net.OneSlaveOff,
            net.MasterFromAllAndFailOver,
            net.MasterFromSlavesAndFailOver,
        ),
        level="L2",
        net="namespaces",
        planted="a refusal is an OK",
    ),
    Row(
        number=6,
        name="partition one way: acknowledgements lost, data lost",
        faults=(net.AcksLost, net.DataLost, net.AcksLostAndFailOver),
        level="L2",
        net="namespaces",
        planted="a refusal is an OK",
    ),
    Row(
        number=7,
        name="two halves with a bridge, a ring of majorities; a failover and a switchover meanwhile",
        faults=(partition.RingAndFailOver, partition.BridgeAndFailOver),
        rounds=2,
        level="L2",
        net="namespaces",
        members=5,
        settings={"inSyncReplicas": "3"},
        planted="who lacks bytes is elected",
    ),
    Row(
        number=8,
        name="links stall one after the other",
        faults=(link.StallsToSlave, link.StallsToMaster),
        level="L2",
        proxied=True,
        net="namespaces",
        planted="the end of a long batch is not dispatched",
    ),
    Row(
        number=9,
        name="slow links, bytes one by one, cuts inside a header and a body, half-closed",
        faults=(link.SlowAndTiny, link.HalfClose),
        level="L2",
        proxied=True,
        net="namespaces",
        rounds=4,
        planted="what arrives in pieces is not dispatched",
    ),
    Row(
        number=10,
        name="a bit flips on the replication stream",
        faults=(link.Flip,),
        level="L2",
        proxied=True,
        net="namespaces",
        rounds=4,
        planted="ack before verification",
    ),
    Row(
        number=11,
        name="what lies on a stopped member's disk: a bit, zeros, a cut or lost file, rubbish behind the end",
        faults=(
            rest.LogAtRest,
            rest.QueuesAtRest,
            rest.IndexAtRest,
            rest.MarksAtRest,
            rest.PromisesAtRest,
            rest.TablesAtRest,
            rest.LogAtRest,
        ),
        level="L2",
        rounds=7,
        planted="what lies on the disk is believed",
    ),
    Row(
        number=12,
        name="writes torn by a power cut, a file of the log without its bytes",
        faults=(torn.TornTail, torn.TornTailOfAll, torn.NewFileWithoutBytes),
        level="L3",
        oracles=WITHOUT_F,
        disks=True,
        planted="what a crash tore is believed",
    ),
    Row(
        number=13,
        name="fdatasync says EIO once",
        faults=(disk.SyncFails,),
        level="L3",
        shim=True,
        planted="failed syncs are swallowed",
    ),
    Row(
        number=14,
        name="ENOSPC, EROFS, EMFILE",
        faults=(disk.DiskFull, refusal.NoRoom, refusal.ReadOnly, refusal.TooManyFiles),
        level="L2",
        disks=True,
        planted="a disk that was full once is full for ever",
        shim=True,
    ),
    Row(
        number=15,
        name="a disk that hangs",
        faults=(disk.StuckDiskOfMaster, disk.StuckDiskOfSlave),
        level="L3",
        disks=True,
        planted="a disk that is slow has failed",
    ),
    Row(
        number=16,
        name="clocks leap, drift and differ; kill -9 and a switchover meanwhile",
        faults=(clock.Clocks, clock.Drift, clock.KillWithOtherClock),
        level="L2",
        calm_s=1.0,  # Until there is a file of the log that could be deleted.
        settings={
            "fileReservedTime": "2",
            "deleteWhen": ";".join(map(str, range(24))),
            "mappedFileSizeCommitLog": "131072",
        },
        planted="retention believes the wall clock",
    ),
    Row(
        number=17,
        name="strangers: forged acknowledgements, 100,000 probes, slow and too large requests",
        faults=(
            stranger.ForgedAcksAndKill,
            stranger.ForgedAcksFromSlaves,
            stranger.Probes,
            stranger.Drips,
            stranger.Oversize,
        ),
        level="L2",
        net="namespaces",
        rounds=5,
        settings=stranger.SETTINGS,
        namesrv_settings={key: stranger.SETTINGS[key] for key in ("halfFrameMaxSeconds", "serverBytesMax")},
        planted="anybody's ack counts",
    ),
    Row(
        number=18,
        name="a storm of role changes, with kill -9, also at named places of a role change",
        faults=(fault.Storm, points.KillInRoleChange, points.KillInRoleChange),
        level="L2",
        points=True,
        planted="a master that resigned goes on",
    ),
    Row(
        number=19,
        name="name servers: dead, empty, two that disagree",
        faults=(fault.KillNameServer, fault.EmptyNameServer, net.NameServersDisagree),
        level="L2",
        net="namespaces",
        namesrvs=2,
        # RocketMQ forgets a broker after 120 s, which no test waits for.
        settings={"registerNameServerPeriod": "10000"},
        namesrv_settings={"scanNotActiveBrokerInterval": "500", "brokerNotActiveTimeoutMillis": "12000"},
        planted="a name server that was away is not told again",
    ),
    Row(
        number=20,
        name="the last replica standing loses its power",
        faults=(disk.LastOneStanding,),
        level="L1",
        disks=True,
        consumers=0,
        planted="an OK does not wait for the disk",
    ),
    Row(
        number=21,
        name="RocketMQ 4.9.7 and 5.3.3 and twinlog in one pair: roles and directories change places",
        faults=(mixed.HandOver, mixed.Exchange, mixed.FailOverMixed, mixed.FailOverMixed, mixed.OtherRelease),
        level="L2",
        oracles="ABCDP",
        members=2,
        rounds=5,
        mixed=True,
        consumers=0,  # RocketMQ shows them what a failover may take back.
        planted="a refusal is an OK",
    ),
    Row(
        number=22,
        name="no idle core, little memory, a thousand clients",
        faults=(load.Pressure,),
        level="L2",
        rounds=2,
        planted="who is a moment late is gone",
    ),
    Row(
        number=23,
        name="a member returns with another address in the middle of a switchover",
        faults=(move.OtherMovesInSwitchover, move.MasterMovesInSwitchover, move.CandidateMovesInSwitchover),
        level="L2",
        oracles=WITH_H,
        planted="the record keeps old addresses",
    ),
    Row(
        number=24,
        name="a member returns with another address in the middle of a failover",
        faults=(move.MasterMovesInFailover, move.SlaveMovesInFailover),
        level="L2",
        oracles=WITH_H,
        rounds=4,
        planted="the record keeps old addresses",
    ),
    Row(
        number=25,
        name="a member returns with another address while one catches up",
        faults=(move.SlaveMovesAsItCatchesUp, move.MasterMovesAsOneCatchesUp),
        level="L2",
        oracles=WITH_H,
        rounds=4,
        planted="the record keeps old addresses",
    ),
    Row(
        number=26,
        name="autoFailover=members: kill -9 of the master, of a slave and then the master, of two of three, of all",
        faults=(
            unattended.MasterKilled,
            unattended.SlaveThenMaster,
            unattended.SlaveBackFirst,
            unattended.MasterBackFirst,
            unattended.AllKilled,
        ),
        level="L2",
        oracles=UNATTENDED,
        settings=unattended.SETTINGS,
        planted="nobody begins an election",
    ),
    Row(
        number=27,
        name="autoFailover=members: the master hangs; a CPU is taken away for 5 s, from all, from slaves, from the master",
        faults=(unattended.GroupAway, unattended.SlavesAway, unattended.MasterAway, unattended.MasterHangs),
        level="L2",
        oracles=UNATTENDED,
        settings=unattended.SETTINGS,
        planted="silence counts while a member stands still, and nobody is asked",
    ),
    Row(
        number=28,
        name="autoFailover=members: the master is cut off from slaves, from clients, from name servers, from all, one way",
        faults=(
            places.FromSlaves,
            places.FromNameServers,
            places.AcksLost,
            places.DataLost,
            places.FromClients,
            places.FromAll,
            places.OneSlaveFromMaster,
        ),
        level="L2",
        oracles=UNATTENDED,
        net="namespaces",
        settings=unattended.SETTINGS,
        planted="it does not matter who hears the master",
    ),
    Row(
        number=29,
        name="autoFailover=members: the master's disk hangs, is full, fails; its machine has no power",
        faults=(places.DiskFull, places.DiskFails, places.DiskFrozen, places.PowerLost),
        level="L3",
        oracles=UNATTENDED,
        net="namespaces",
        disks=True,
        shim=True,
        settings=unattended.SETTINGS,
        planted="only a process that is gone is suspected",
    ),
    Row(
        number=30,
        name="autoFailover=members: clocks jump by an hour, each member's; the master is killed meanwhile",
        faults=(places.ClocksJump, places.ClocksJumpAndMasterKilled),
        level="L2",
        oracles=UNATTENDED,
        rounds=2,
        settings=unattended.SETTINGS,
        planted="silence is measured by the wall clock, and nobody is asked",
    ),
    Row(
        number=31,
        name="autoFailover=members: a member comes and goes every 10 s; masters hang in turn",
        faults=(unattended.ComesAndGoes, unattended.MastersHangInTurn),
        level="L2",
        oracles=UNATTENDED,
        rounds=2,
        is_long=True,
        settings=unattended.SETTINGS,
        planted="nobody holds off",
    ),
    Row(
        number=32,
        name="autoFailover=etcd, a pair: kill -9 of one after the other, of etcd before or after them, of both",
        faults=(
            kept.EachInTurn,
            kept.MasterThenEtcd,
            kept.EtcdThenSlaveThenMaster,
            kept.MasterAndEtcd,
            kept.SlaveThenMaster,
            kept.BothKilled,
        ),
        level="L3",
        oracles=KEPT,
        members=2,
        etcds=(1, 3),
        settings=kept.SETTINGS,
        planted="the in-sync set shrinks without etcd",
    ),
    Row(
        number=33,
        name="autoFailover=etcd, a pair: either one hangs, both have no CPU; either one has no power, also the last one",
        faults=(
            kept.MasterHangs,
            kept.SlaveHangs,
            kept.BothAway,
            kept_places.MasterWithoutPower,
            kept_places.SlaveWithoutPower,
            kept_places.LastOneWithoutPower,
        ),
        level="L3",
        oracles=KEPT,
        net="namespaces",
        members=2,
        etcds=(1, 3),
        disks=True,
        settings=kept.SETTINGS,
        planted="only a process that is gone is suspected",
    ),
    Row(
        number=34,
        name="autoFailover=etcd, a pair: cut off from each other, one way, from etcd only, from all",
        faults=(
            kept_places.FromEachOther,
            kept_places.DataLost,
            kept_places.MasterFromEtcd,
            kept_places.SlaveFromEtcd,
            kept_places.MasterFromAll,
            kept_places.SlaveFromAll,
            kept_places.MasterFromSlaveAndEtcd,
            kept_places.AcksLost,
            kept_places.MasterFromEtcdAndSlaveKilled,
            kept_places.SwapUnanswered,
        ),
        level="L3",
        oracles=KEPT,
        net="namespaces",
        members=2,
        etcds=(1, 3),
        settings=kept.SETTINGS_OF_CUTS,
        planted="what the master tells etcd is not looked at",
    ),
    Row(
        number=35,
        name="autoFailover=etcd, a pair: etcd's leader is killed, all of etcd is killed, hangs, is slow, is full, loses its data",
        faults=(
            kept.LeaderKilled,
            kept.EtcdKilled,
            kept.EtcdHangs,
            kept.EtcdSlow,
            kept.EtcdLosesData,
            kept.EtcdFull,
        ),
        level="L3",
        oracles=KEPT,
        members=2,
        etcds=(1, 3),
        settings=kept.SETTINGS,
        planted="a master needs etcd, too",
    ),
    Row(
        number=36,
        name="autoFailover=etcd, three members: the master or a slave is cut off, one is killed after the other",
        faults=(
            kept_places.OfThreeFromSlaves,
            kept_places.OfThreeFromSlavesAndEtcd,
            kept_places.OfThreeOneSlave,
            kept.OneAfterTheOther,
            kept.SlavesInTurn,
            kept.SlavesAtOnce,
        ),
        level="L3",
        oracles=KEPT,
        net="namespaces",
        etcds=(1, 3),
        settings=kept.SETTINGS_OF_CUTS,
        planted="nobody begins an election",
    ),
)
SHORT = tuple(row for row in ROWS if not row.is_long)

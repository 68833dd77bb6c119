"""How a broker stays known to its name servers, and what it learns from them."""

import zlib

import pytest
import trio
from attrs import define, field

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.group.registration import (
    HOLD_SECONDS_MAX,
    KEPT_SECONDS,
    LATE_SECONDS_MAX,
    Master,
    RegisteredSlaves,
    RegistrationService,
    member_addresses,
    next_pause,
    registration_body,
    slaves_of,
)
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.tables.topics import TopicConfig, TopicConfigManager
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError

NS1, NS2 = "192.0.2.1:9876", "192.0.2.2:9876"


@define(eq=False)
class FakeNameServers:
    """Stands for RemotingClient: answers at once, or refuses, and keeps what it was asked and when."""

    down: set[str] = field(factory=set)
    asked: list[tuple[float, str, RemotingCommand]] = field(factory=list)
    master: dict[str, str] = field(factory=dict)
    ordered: dict[str, str] | None = None
    table_body: bytes | None = None  # Instead of what `ordered` makes.
    slaves: dict[str, dict[int, str]] = field(factory=dict)
    addresses: set[str] = field(factory=set)
    forgot_master: set[str] = field(factory=set)

    async def request(self, address, command, *, timeout_ms=3000):
        await trio.lowlevel.checkpoint()
        if address in self.down:
            self.addresses.discard(address)
            raise RemotingConnectError(address, "Connection refused")
        self.addresses.add(address)
        self.asked.append((trio.current_time(), address, command))
        if command.code == 106:
            masters = {} if address in self.forgot_master else {0: "192.0.2.11:10911"}
            addresses = {**masters, **self.slaves.get(address, {})}
            return RemotingCommand(
                0, body=fastjson.dumps({"brokerAddrTable": {"broker-a": {"brokerAddrs": addresses}}})
            )
        table = fastjson.dumps({"table": self.ordered}) if self.ordered is not None else b""
        return RemotingCommand(0, ext=dict(self.master), body=table if self.table_body is None else self.table_body)

    def times(self, code, address=NS1):
        return [round(time, 2) for time, to, command in self.asked if command.code == code and to == address]


@define(eq=False)
class Listener:
    """Keeps what it is told. `masters`, `members` and `found`: each call's news."""

    masters: list = field(factory=list)
    members: list = field(factory=list)
    found: list = field(factory=list)
    unregistered_peers: bool = False
    replaced: bool = False
    elected: bool = False
    registration: RegistrationService = field(init=False)

    def master_changed(self, master):
        self.masters.append(master)

    def members_changed(self):
        self.members.append(self.registration.members)

    def found_members(self, addresses):
        self.found.append(addresses)

    def has_unregistered_peers(self):
        return self.unregistered_peers

    def may_be_replaced(self):
        return self.replaced

    def is_surely_master(self):
        return self.elected


def service(fake, *, namesrv=NS1, broker_id=0, is_slave=False, listener=None):
    topics = TopicConfigManager(lambda: 7)
    topics.update(TopicConfig("T1", 4, 4))
    settings = Settings(config=BrokerConfig(broker_name="broker-a", namesrv_addr=namesrv, broker_id=broker_id))
    settings.address, settings.ha_address = "192.0.2.11:10911", "192.0.2.11:10912"
    listener = listener or Listener()
    made = listener.registration = RegistrationService(
        settings=settings, client=fake, topics=topics, is_slave=is_slave, listener=listener
    )
    topics.on_change.append(lambda _topic: made.topics_changed())
    return made


def running(nursery, fake, **options):
    made = service(fake, **options)
    nursery.start_soon(made.run)
    return made


async def test_the_request_is_rocketmqs(autojump_clock, nursery):
    """Header and body as captured from 4.9.7, CRC included."""
    fake = FakeNameServers()
    await service(fake).register_all()
    ((_, _, command),) = fake.asked
    assert command.ext == {
        "brokerName": "broker-a",
        "brokerAddr": "192.0.2.11:10911",
        "clusterName": "DefaultCluster",
        "haServerAddr": "192.0.2.11:10912",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": str(zlib.crc32(command.body) & 0x7FFFFFFF),
    }
    body = fastjson.loads(command.body)
    assert body["filterServerList"] == []
    assert body["topicConfigSerializeWrapper"]["dataVersion"] == {"counter": 1, "timestamp": 7}
    assert body["topicConfigSerializeWrapper"]["topicConfigTable"]["T1"]["writeQueueNums"] == 4


def test_a_broker_that_forbids_writing_says_so_for_its_topics():
    topics = TopicConfigManager(lambda: 7)
    topics.update(TopicConfig("T1"))
    table = fastjson.loads(registration_body(topics, 4))["topicConfigSerializeWrapper"]["topicConfigTable"]
    assert table["T1"]["perm"] == 4
    assert topics.table["T1"].perm == 6


def test_pauses_grow_while_nobody_answers_and_settle_at_the_period():
    assert [next_pause(0, failures, 30) for failures in (1, 2, 3, 4, 5, 50)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert [next_pause(since_first, 0, 30) for since_first in (0, 1, 3, 11, 99)] == [1.0, 10.0, 8.0, 30, 30]


async def test_it_registers_early_often_and_then_each_period(autojump_clock, nursery):
    fake = FakeNameServers()
    running(nursery, fake)
    await trio.sleep(80)
    assert fake.times(103) == [0, 1, 11, 41, 71]


async def test_a_name_server_that_comes_late_learns_of_the_broker_at_once(autojump_clock, nursery):
    """And one that stays away holds up nobody."""
    fake = FakeNameServers(down={NS1, NS2})
    registration = running(nursery, fake, namesrv=f"{NS1};{NS2}")
    await trio.sleep(60)
    assert not registration.registered.is_set()
    fake.down = {NS2}
    with trio.fail_after(1.01):
        await registration.registered.wait()


async def test_a_lost_connection_is_registered_anew(autojump_clock, nursery):
    """The name server forgets a broker with its connection; waiting for the period would cost 30 s."""
    fake = FakeNameServers()
    running(nursery, fake)
    await trio.sleep(52)
    before = len(fake.times(103))
    fake.addresses.clear()
    await trio.sleep(1.02)
    assert len(fake.times(103)) == before + 1


async def test_changes_that_come_together_go_out_together(autojump_clock, nursery):
    fake = FakeNameServers()
    registration = running(nursery, fake)
    await trio.sleep(20)
    for n in range(10):
        registration.topics.update(TopicConfig(f"N{n}"))
    await trio.sleep(0.1)
    assert fake.times(103) == [0, 1, 11, 20]
    assert "N9" in fastjson.loads(fake.asked[-1][2].body)["topicConfigSerializeWrapper"]["topicConfigTable"]


async def test_changes_that_follow_each_other_go_out_at_a_pace(autojump_clock, nursery):
    """The first one at once: whoever made a topic asks for it soon. A thousand new topics are not a thousand registrations."""
    fake = FakeNameServers()
    registration = running(nursery, fake)
    await trio.sleep(20)
    for n in range(1000):
        registration.topics.update(TopicConfig(f"N{n}"))
        await trio.sleep(0.0001)
    await trio.sleep(0.1)
    at_it = [at for at in fake.times(103) if at >= 20]
    assert at_it[0] == 20
    assert 9 <= len(at_it) <= 12
    assert "N999" in fastjson.loads(fake.asked[-1][2].body)["topicConfigSerializeWrapper"]["topicConfigTable"]


async def test_a_slave_asks_each_second_until_a_master_is_known(autojump_clock, nursery):
    listener = Listener()
    fake = FakeNameServers()
    running(nursery, fake, is_slave=True, broker_id=1, listener=listener)
    await trio.sleep(30.5)
    assert listener.masters == []
    fake.master = {"masterAddr": "192.0.2.11:10911", "haServerAddr": "192.0.2.11:10912"}
    await trio.sleep(1)
    assert listener.masters == [Master("192.0.2.11:10911", "192.0.2.11:10912")]
    fake.master = {}
    await trio.sleep(40)
    assert listener.masters[1:] == [Master(None, None)]


async def test_ordered_topics_are_named_by_the_name_server(autojump_clock, nursery):
    fake = FakeNameServers(ordered={"T1": "broker-a:4"})
    registration = running(nursery, fake)
    await trio.sleep(5)
    assert registration.topics.table["T1"].order
    assert len(fake.times(103)) == 3, "start, once more for the change, and the early repeat"


async def test_an_answer_that_is_none_is_a_failure(autojump_clock, nursery):
    """Of one name server: whoever sits at that address must not end the broker."""
    fake = FakeNameServers(table_body=b"[]")
    registration = running(nursery, fake)
    await trio.sleep(3)
    assert not registration.registered.is_set()
    fake.table_body = None
    await trio.sleep(3)
    assert registration.registered.is_set()


async def test_a_master_watches_who_its_slaves_are(autojump_clock, nursery):
    listener = Listener()
    fake = FakeNameServers()
    registration = running(nursery, fake, listener=listener)
    await trio.sleep(12)
    assert fake.times(106) == [0, 5, 10]
    fake.slaves[NS1] = {1: "192.0.2.12:10911", 2: "192.0.2.13:10911"}
    listener.unregistered_peers = True
    registration.ask_members()
    await trio.sleep(2)
    assert listener.members == [["192.0.2.12", "192.0.2.13"]]
    assert fake.times(106)[3:] == [12.05, 12.55, 13.05, 13.55], "each half second while a stranger waits"
    fake.down = {NS1}
    await trio.sleep(20)
    assert listener.members[1:] == [], "nobody answers: the last list stays"


async def test_a_slave_watches_who_else_is_a_slave(autojump_clock, nursery):
    """They may follow it; itself it does not count."""
    listener = Listener()
    fake = FakeNameServers(slaves={NS1: {1: "192.0.2.12:10911", 2: "192.0.2.13:10911"}})
    running(nursery, fake, is_slave=True, broker_id=1, listener=listener)
    await trio.sleep(1)
    assert listener.members == [["192.0.2.13"]]


def test_two_slaves_at_one_address_are_two():
    """And those of other groups are none of ours."""
    info = {
        "brokerAddrTable": {
            "broker-a": {"brokerAddrs": {"0": "127.0.0.1:1", "1": "127.0.0.1:2", "2": "127.0.0.1:3"}},
            "broker-b": {"brokerAddrs": {"1": "192.0.2.9:2"}},
        }
    }
    assert slaves_of(member_addresses("broker-a", info)) == {(1, "127.0.0.1"), (2, "127.0.0.1")}
    assert slaves_of(member_addresses("broker-c", info)) == set()


async def test_a_master_whose_id_was_taken_away_registers_again_soon(autojump_clock, nursery):
    """A master of before that comes to itself may register as id 0 once more, and takes that along when it becomes a slave."""
    fake = FakeNameServers()
    running(nursery, fake, namesrv=f"{NS1};{NS2}")
    await trio.sleep(60)
    before = len(fake.times(103)), len(fake.times(103, NS2))
    fake.forgot_master.add(NS1)
    await trio.sleep(6)
    fake.forgot_master.clear()
    assert (len(fake.times(103)) - before[0], len(fake.times(103, NS2)) - before[1]) in ((1, 0), (2, 0), (2, 1))
    slave = FakeNameServers(
        forgot_master={NS1}, master={"masterAddr": "192.0.2.12:10911", "haServerAddr": "192.0.2.12:10912"}
    )
    running(nursery, slave, broker_id=1, is_slave=True)
    await trio.sleep(60)
    asked = len(slave.times(103))
    await trio.sleep(20)
    assert len(slave.times(103)) - asked <= 1, "it has nothing to say there"


async def test_an_elected_master_takes_its_id_back_from_one_that_stood_still(autojump_clock, nursery):
    """That one registers once more when it wakes up, before it hears that another was elected."""
    fake, listener = FakeNameServers(), Listener(elected=True)
    running(nursery, fake, listener=listener)
    await trio.sleep(60)
    before = len(fake.times(103))
    fake.slaves[NS1] = {0: "192.0.2.12:10911"}
    await trio.sleep(6)
    assert len(fake.times(103)) > before


async def test_a_master_that_stood_still_asks_before_it_registers(autojump_clock, nursery):
    fake, listener = FakeNameServers(), Listener()
    running(nursery, fake, listener=listener)
    await trio.sleep(60)
    last = fake.times(103)[-1]
    await trio.sleep_until(last + 29.9)  # The next one is due, and the members were requested a moment ago.
    listener.replaced, fake.slaves[NS1] = True, {0: "192.0.2.12:10911"}
    await trio.sleep(30)
    assert fake.times(103)[-1] == last


async def test_a_master_that_may_be_none_takes_no_id_from_another(autojump_clock, nursery):
    """Cut off from its group and not from the name server, it would lead clients to itself each 30 s."""
    fake, listener = FakeNameServers(), Listener()
    running(nursery, fake, listener=listener)
    await trio.sleep(60)
    listener.replaced = True
    before = len(fake.times(103))
    await trio.sleep(60)
    assert len(fake.times(103)) == before + 2, "it is the one who is registered"
    fake.slaves[NS1] = {0: "192.0.2.12:10911"}
    await trio.sleep(6)
    before = len(fake.times(103))
    await trio.sleep(120)
    assert len(fake.times(103)) == before
    listener.replaced = False
    await trio.sleep(3)
    assert len(fake.times(103)) == before + 1


async def test_it_says_goodbye(autojump_clock, nursery):
    fake = FakeNameServers(down={NS2})
    await service(fake, namesrv=f"{NS1};{NS2}").leave()
    ((_, _, command),) = fake.asked
    assert command.code == 104
    assert command.ext["brokerAddr"] == "192.0.2.11:10911"


async def test_who_is_held_registers_nothing_and_asks_all_the_same(autojump_clock, nursery):
    """A master that starts must not say that it is one, and has to find out whether somebody else is."""
    listener = Listener()
    fake = FakeNameServers(slaves={NS1: {1: "192.0.2.12:10911"}})
    registration = service(fake, listener=listener)
    await registration.hold()
    nursery.start_soon(registration.run)
    await trio.sleep(30)
    assert fake.times(103) == []
    assert listener.found[-1] == {0: "192.0.2.11:10911", 1: "192.0.2.12:10911"}
    registration.set_role(0, is_slave=False)
    await trio.sleep(20)
    assert fake.times(103) == [30, 31, 41]


async def test_another_role_is_registered_at_once_and_often(autojump_clock, nursery):
    fake = FakeNameServers()
    registration = running(nursery, fake)
    await trio.sleep(50)
    before = len(fake.times(103))
    registration.set_role(2, is_slave=True)
    fake.master = {"masterAddr": "192.0.2.12:10911", "haServerAddr": "192.0.2.12:10912"}
    await trio.sleep(20)
    assert fake.times(103)[before:] == [50, 51, 61]
    assert [command.ext["brokerId"] for _, _, command in fake.asked if command.code == 103][before:] == ["2"] * 3
    assert registration.master == Master("192.0.2.12:10911", "192.0.2.12:10912")


@define(eq=False)
class SlowNameServer:
    """Takes registrations when it gets round to it, in their order; names as the master who came last."""

    answers: trio.Event = field(factory=trio.Event)
    leader: str = "192.0.2.11:10911"
    asked: list[int] = field(factory=list)
    registered: list[str] = field(factory=list)

    async def request(self, address, command, *, timeout_ms=3000):
        self.asked.append(command.code)
        await self.answers.wait()
        if command.code == 103:
            self.registered.append(command.ext["brokerId"])
        addresses = {0: self.leader}
        body = {"brokerAddrTable": {"broker-a": {"brokerName": "broker-a", "brokerAddrs": addresses}}}
        return RemotingCommand(0, body=fastjson.dumps(body) if command.code == 106 else b"")

    @property
    def addresses(self):
        return frozenset({NS1})


@pytest.mark.parametrize("stays", [False, True])
async def test_a_registration_that_comes_late_stands_until_the_new_master_is_known(stays, autojump_clock, nursery):
    """Else the group would have no master in routes for a while, and producers that ask just then would fail."""
    fake = SlowNameServer()
    registration = running(nursery, fake)
    await trio.sleep(0.05)
    began = trio.current_time()
    await registration.hold()
    assert trio.current_time() - began == pytest.approx(HOLD_SECONDS_MAX)
    registration.set_role(1, is_slave=True)
    fake.answers.set()
    await trio.sleep(1)
    assert fake.registered == ["0"], "it takes this broker for the master, which passes on what comes"
    if not stays:
        fake.leader = "192.0.2.12:10911"  # Which has registered again.
        await trio.sleep(1)
    else:
        await trio.sleep(LATE_SECONDS_MAX)
    assert fake.registered[:2] == ["0", "1"]


async def test_a_hold_with_nothing_under_way_is_over_at_once(autojump_clock):
    fake = FakeNameServers()
    registration = service(fake)
    await registration.register_all()
    began = trio.current_time()
    await registration.hold()
    assert trio.current_time() == began
    registration.set_role(1, is_slave=True)
    await registration.register_all()
    assert [command.code for _, _, command in fake.asked] == [103, 103], "and nobody has to be asked for the master"


async def test_who_is_held_does_not_give_up_an_id_that_may_be_anothers(autojump_clock):
    """Name servers go by the id."""
    fake = FakeNameServers()
    registration = service(fake)
    await registration.register_all()
    await registration.hold()
    await registration.leave()
    assert fake.times(104) == []


async def test_who_leaves_unregisters_once_and_registers_no_more(autojump_clock, nursery):
    """A stop goes on for seconds behind that: producers are still being answered."""
    fake = FakeNameServers()
    registration = running(nursery, fake)
    await trio.sleep(1)
    await registration.leave()
    assert len(fake.times(104)) == 1
    registered = len(fake.times(103))
    registration.topics_changed()
    await trio.sleep(100)
    await registration.leave()
    assert (len(fake.times(103)), len(fake.times(104))) == (registered, 1)


@pytest.mark.parametrize("answers", [True, False])
async def test_leaving_waits_for_what_is_under_way_but_not_long(autojump_clock, nursery, answers):
    """A registration that arrived behind the goodbye would bring the broker back."""
    fake = SlowNameServer()
    registration = service(fake)
    nursery.start_soon(registration.register_all)
    await trio.sleep(0.1)
    nursery.start_soon(registration.leave)
    await trio.sleep(0.2)
    assert fake.asked == [103]
    if answers:
        fake.answers.set()
    await trio.sleep(0.01 if answers else 0.2)
    assert fake.asked == [103, 104]


def test_a_name_server_that_forgot_everybody_takes_no_slave_away():
    """After its restart a RocketMQ slave registers again only within 30 s; its acks must count all the while."""
    slaves = RegisteredSlaves()
    assert slaves.answered({(1, "192.0.2.1"), (2, "192.0.2.2")}, 0.0) == ["192.0.2.1", "192.0.2.2"]
    assert slaves.answered(set(), 30.0) == ["192.0.2.1", "192.0.2.2"]


def test_a_slave_that_stays_away_is_forgotten():
    slaves = RegisteredSlaves()
    slaves.answered({(1, "192.0.2.1"), (2, "192.0.2.2")}, 0.0)
    assert slaves.answered({(2, "192.0.2.2")}, KEPT_SECONDS) == ["192.0.2.2"]


def test_a_slave_that_moved_has_one_voice():
    slaves = RegisteredSlaves()
    slaves.answered({(1, "192.0.2.1")}, 0.0)
    assert slaves.answered({(1, "192.0.2.9")}, 1.0) == ["192.0.2.9"]


def test_two_slaves_with_one_ip_have_two_voices():
    assert RegisteredSlaves().answered({(1, "127.0.0.1"), (2, "127.0.0.1")}, 0.0) == ["127.0.0.1", "127.0.0.1"]


async def test_a_member_that_is_refused_takes_back_what_is_its_own(autojump_clock, nursery):
    fake = FakeNameServers(slaves={NS1: {1: "192.0.2.11:10911"}, NS2: {1: "192.0.2.12:10911"}})
    registration = running(nursery, fake, namesrv=f"{NS1};{NS2}", broker_id=1, is_slave=True)
    await trio.sleep(20)
    await registration.withdraw()
    before = fake.times(103)
    await trio.sleep(100)
    assert (len(fake.times(104, NS1)), len(fake.times(104, NS2))) == (1, 0), "another one has the id there"
    assert fake.times(103) == before
    await registration.leave()
    assert len(fake.times(104, NS1)) == 1
    registration.set_role(1, is_slave=True)
    await trio.sleep(1)
    assert len(fake.times(103)) > len(before), "it was accepted"


async def test_a_slave_of_a_group_waits_a_moment_for_its_word(autojump_clock, nursery):
    fake = FakeNameServers()
    registration = service(fake, broker_id=1, is_slave=True)
    registration.wait_for_group()
    nursery.start_soon(registration.run)
    await trio.sleep(0.9)
    assert fake.times(103) == []
    await trio.sleep(0.2)
    assert fake.times(103) == [1]
    later = service(fake, broker_id=1, is_slave=True)
    later.wait_for_group()
    nursery.start_soon(later.run)
    await trio.sleep(0.1)
    await later.withdraw()
    await trio.sleep(50)
    assert fake.times(104) == []

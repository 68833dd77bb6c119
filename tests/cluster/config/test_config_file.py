"""From settings to configuration objects: every value finds its field, and nothing that is wrong stays silent."""

from enum import Enum
from pathlib import Path

import pytest
from attrs import field, frozen, validators

from twinlog.cluster.config import rocketmq_keys
from twinlog.cluster.config.config_file import Setting, configure, options_of, read_value, setting_of, settings_of
from twinlog.cluster.config.properties_file import ConfigError
from twinlog.store.config import BrokerRole, StoreConfig, option


class Colour(Enum):
    RED = "r"
    GREEN = "g"


@frozen(kw_only=True)
class Sample:
    port: int = option(10911, key="listenPort", doc="a port", validator=[validators.ge(0), validators.le(65535)])
    ratio: float = option(0.5, key="ratio", doc="a share")
    enabled: bool = option(True, key="enabled", doc="a switch")
    colour: Colour = option(Colour.RED, key="colour", doc="a word")
    place: Path | None = option(None, key="place", doc="a directory")
    peers: tuple[str, ...] = option((), key="peers", doc="addresses")
    inner: int = field(default=7)  # No key: not an option.


@frozen(kw_only=True)
class Other:
    role: BrokerRole = option(BrokerRole.ASYNC_MASTER, key="brokerRole", doc="the role")


def sample(text: str, **kwargs) -> Sample:
    return configure([Sample], settings_of(text, "b.conf"), **kwargs).of(Sample)


def test_values_reach_their_fields():
    text = "listenPort=1\nratio=2.5\nenabled=FALSE\ncolour=GREEN\nplace=/tmp/x\npeers=a:1;b:2,c:3"
    assert sample(text) == Sample(
        port=1, ratio=2.5, enabled=False, colour=Colour.GREEN, place=Path("/tmp/x"), peers=("a:1", "b:2", "c:3")
    )


def test_nothing_given_is_the_default():
    assert sample("") == Sample()


def test_a_key_reaches_every_class_that_declares_it():
    made = configure([StoreConfig, Other], settings_of("brokerRole=SLAVE", "b.conf"))
    assert made.of(StoreConfig).broker_role is made.of(Other).role is BrokerRole.SLAVE


def test_the_last_setting_wins_and_says_where_it_is_from():
    made = configure([Sample], [*settings_of("listenPort=1\nlistenPort=2\nratio=3", "b.conf"), setting_of("ratio=4")])
    assert made.of(Sample).port == 2
    assert {(e.key, e.text, e.source) for e in made.effective} >= {
        ("listenPort", "2", "b.conf:2"),
        ("ratio", "4.0", "--set"),
        ("enabled", "true", "default"),
        ("place", "", "default"),
    }


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("listenPort=ten", "a whole number"),
        ("listenPort=", "a whole number"),
        ("listenPort=-1", "a number >= 0 and <= 65535"),
        ("listenPort=70000", "a number >= 0 and <= 65535"),
        ("enabled=yes", "true or false"),
        ("colour=BLUE", "RED or GREEN"),
        ("ratio=half", "a number"),
    ],
)
def test_a_bad_value_names_file_line_key_value_and_what_is_allowed(line, allowed):
    with pytest.raises(ConfigError) as caught:
        sample(f"# one line before\n{line}")
    assert str(caught.value) == f"b.conf:2: {line}: expected {allowed}"


def test_a_validator_of_ones_own_is_quoted():
    with pytest.raises(ConfigError, match=r"^b.conf:1: mappedFileSizeCommitLog=100: expected >= 4096$"):
        configure([StoreConfig], settings_of("mappedFileSizeCommitLog=100", "b.conf"))


def test_all_bad_values_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        sample("listenPort=x\nenabled=maybe")
    assert sorted(str(caught.value).splitlines()) == [
        "b.conf:1: listenPort=x: expected a whole number",
        "b.conf:2: enabled=maybe: expected true or false",
    ]


def test_an_unknown_key_comes_with_the_nearest_known_one():
    made = configure([Sample], settings_of("listenport=1\nzzzzzz=1", "b.conf"), also_known={"haListenPort"})
    assert made.unknown == (
        "b.conf:1: unknown key listenport; did you mean listenPort?",
        "b.conf:2: unknown key zzzzzz",
    )


def test_what_only_rocketmq_knows_is_not_unknown():
    made = configure([Sample], settings_of("transientStorePoolEnable=true", "b.conf"), also_known=rocketmq_keys.STORE)
    assert (made.unknown, made.without_effect) == ((), ("transientStorePoolEnable",))


def test_user_home_is_replaced_and_a_stranger_is_left():
    made = sample("place=${user.home}/store", properties={"user.home": "/home/me"})
    assert made.place == Path("/home/me/store")
    assert sample("place=/x/${who.knows}", properties={}).place == Path("/x/${who.knows}")


def test_a_tilde_is_the_home_directory():
    assert read_value("~/store", Path) == Path.home() / "store"


@pytest.mark.parametrize("argument", ["", "=1", "key"])
def test_set_needs_key_and_value(argument):
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        setting_of(argument)


def test_set_takes_a_value_with_signs_in_it():
    assert setting_of("a = b=c") == Setting("a", "b=c", "--set")


def test_options_keep_the_order_of_declaration():
    assert list(options_of([Sample])) == ["listenPort", "ratio", "enabled", "colour", "place", "peers"]


def test_every_store_option_is_a_key_of_rocketmq_or_meant_to_be_ours():
    """A slip in our own table of options would show here."""
    ours = {"recoveryPointBytes", "scrubBytesPerSecond", "scrubIntervalHours"}
    assert options_of([StoreConfig]).keys() - rocketmq_keys.BROKER_FILE == ours

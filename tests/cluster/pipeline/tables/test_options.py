"""Options of the tables: accepted values, and messages for others."""

import pytest

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.cluster.pipeline.tables.options import read_options
from twinlog.cluster.pipeline.tables.schemas import TABLES


def test_only_the_path_is_needed():
    options = read_options({"path": "/a"})
    assert options.members == (StoreUri("/a"),)
    assert (options.topics, options.start, options.body, options.unconfirmed) == (None, 0, False, False)
    assert options.broker_of(0) is None


def test_names_count_without_case():
    told = {
        "PATH": "/a, s3://bucket/b",
        "Broker": "h:1,h:2",
        "TOPICS": "x,y",
        "StartingOffset": "LATEST",
        "body": "True",
    }
    options = read_options(told)
    assert options.members == (StoreUri("/a"), StoreUri("s3://bucket/b"))
    assert [options.broker_of(number) for number in range(2)] == ["h:1", "h:2"]
    assert (options.topics, options.start, options.body) == (frozenset({"x", "y"}), None, True)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({}, "option path is missing"),
        ({"path": " , "}, "option path is missing"),
        ({"path": "/a,/b", "broker": "h:1"}, "1 brokers for 2 stores"),
        ({"path": "/a,/b,/a/"}, "option path names /a twice"),
        ({"path": "s3://b/a?region=x,s3://b/a?region=y"}, "option path names s3://b/a twice"),
        ({"path": "/a", "body": "yes"}, "option body is 'yes'"),
        ({"path": "/a", "splitSize": "0"}, "option splitSize is '0'"),
        ({"path": "/a", "maxBytesPerTrigger": "1g"}, "option maxBytesPerTrigger is '1g'"),
        ({"path": "/a", "startingOffset": "-1"}, "option startingOffset is '-1'"),
    ],
)
def test_what_cannot_be_is_named(told, words):
    with pytest.raises(ReadRefusedError, match=words):
        read_options(told)


def test_every_option_of_the_page_is_one():
    """And a default that stands there is the one that holds."""
    for table in TABLES:
        shown = {option.name: option.default for option in table.options if option.default}
        assert read_options({"path": "/a"} | shown) == read_options({"path": "/a"}), table.name


def test_keys_in_a_uri_go_nowhere():
    assert StoreUri("s3://bucket/a?secret_key=x").shown == "s3://bucket/a"
    assert StoreUri("/data/a?b").shown == "/data/a?b"

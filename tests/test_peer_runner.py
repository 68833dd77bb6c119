"""What becomes of the classes of a suite when machines hang or die: with a small program in the JVM's place."""

import sys
from functools import partial
from pathlib import Path

import trio

from tests.peer_suite.runner import NO_RESULT, Suite, chosen

MACHINE = """
import json, os, pathlib, sys, time
for line in sys.stdin:
    name = line.split(".")[-1].strip()
    if name == "hangs":
        time.sleep(60)
    if name == "dies":
        sys.exit(1)
    seen = pathlib.Path("..", name)
    bad = name == "always" or (name == "once" and not seen.exists())
    seen.touch()
    failures = [{"test": "t", "trace": "why"}] if bad else []
    print(json.dumps({"tests": 1, "failures": failures, "seconds": 0.1, "pid": os.getpid()}), flush=True)
"""


def suite(root: Path, **options: object) -> Suite:
    return Suite("none:1", root, command=lambda _namesrv, _home: [sys.executable, "-c", MACHINE], **options)


def test_every_class_gets_its_result_and_a_failed_one_a_second(tmp_path):
    names = ["good", "once", "always", "dies", "delay.good"]
    told = []
    results = trio.run(partial(suite(tmp_path, tell=lambda name, run: told.append(name)).run, names))
    assert list(results) == names
    passed = {name: [run.passed for run in runs] for name, runs in results.items()}
    assert passed == {
        "good": [True],
        "once": [False, True],
        "always": [False, False],
        "dies": [False, False],
        "delay.good": [True],
    }
    assert results["dies"][0].tests == NO_RESULT
    assert results["dies"][0].failures[0]["trace"] == "the JVM ended"
    assert told[-3:] == ["once", "always", "dies"]


def test_a_class_that_hangs_is_left_behind(tmp_path):
    """The machine is killed, and the next class gets another one."""
    work = suite(tmp_path, class_seconds_max=3)
    results = trio.run(partial(work.run, ["hangs", "good"], jobs=1, again=False))
    assert results["hangs"][0].failures[0]["trace"] == "no result within 3 s"
    assert results["good"][0].passed


def test_classes_are_chosen_by_parts_of_their_names():
    names = ["a.TagIT", "a.OrderIT", "b.TagIT"]
    assert chosen(names, []) == names
    assert chosen(names, ["Order", "b."]) == ["a.OrderIT", "b.TagIT"]

"""What porcupine, which nobody here wrote, says of a history: is there an order that explains all operations by one log a queue?

https://github.com/anishathalye/porcupine, as go/go.mod pins it. The model is in go/main.go; here a history is put into its words.
append_log.py decides the same by offsets, so a bug in either of them shows.
"""

import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.fault_matrix.checkers.verdict import Verdict, verdict
from scripts.fault_matrix.history import Append, History, Seen
from tests.support.process_group import go_programs

SOURCE = Path(__file__).with_name("go")
SECONDS_MAX = 60.0  # Of the search; a run of a row takes less than one.
ROOM_S = 30.0  # To read the history, and to write the answer.

Operation = dict[str, Any]


def is_there() -> bool:
    """Whether this machine can build it."""
    return shutil.which("go") is not None


def program() -> Path:
    """The first call builds it."""
    return go_programs.own(SOURCE, "porcupine")


def an_order_explains(history: History, seconds: float = SECONDS_MAX) -> Verdict:
    """Oracle P."""
    told = asked(queues_of(history.appends, history.reads), seconds)
    wrong = [
        f"{each['queue']}: no order explains all of its {each['operations']} operations; {each['explained']} at most, "
        f"without {each['stuck']}"
        for each in told["wrong"]
    ]
    if told["result"] == "Unknown":
        wrong = [f"{told['operations']} operations were not judged within {seconds:g} s"]
    elif (told["result"] == "Ok") is bool(wrong):
        wrong.append(f"porcupine says {told['result']}")
    if not told["operations"]:
        wrong.append("there was no operation, so nothing was shown")
    return verdict("P", wrong, f"{told['operations']} operations, judged in {told['seconds']:.1f} s")


def asked(queues: Mapping[str, Sequence[Operation]], seconds: float) -> dict[str, Any]:
    """Answer of the program."""
    question = json.dumps({"seconds": seconds, "queues": queues})
    done = subprocess.run([program()], input=question, capture_output=True, text=True, timeout=seconds + ROOM_S)
    if done.returncode:
        raise AssertionError(f"porcupine ended with {done.returncode}: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def queues_of(appends: Iterable[Append], reads: Sequence[Seen]) -> dict[str, list[Operation]]:
    """The operations of each queue, as go/main.go reads them. What certainly did not happen is none.

    The last reads of all see every queue to its end, and a queue of which they say nothing is empty.
    """
    found: defaultdict[str, list[Operation]] = defaultdict(list)
    for append in appends:
        if append.outcome != "fail":
            found[append.queue].append(_append(append))
    ends: dict[str, int] = {}
    for pull in _pulls(reads):
        first, values = pull[0], [seen.value for seen in pull]
        known = {"kind": "read", "begin": first.begin_ns, "end": min(seen.end_ns for seen in pull)}
        found[first.queue].append({**known, "place": first.offset, "values": values})
        if first.final:
            ends[first.queue] = max(ends.get(first.queue, 0), first.offset + len(values))
    if final := [read for read in reads if read.final]:
        span = {"begin": min(read.begin_ns for read in final), "end": max(read.end_ns for read in final)}
        for queue, operations in found.items():
            operations.append({"kind": "end", **span, "place": ends.get(queue, 0), "values": []})
    return found


def _append(append: Append) -> Operation:
    told = append.outcome == "ok"
    return {
        "kind": "append",
        "begin": append.begin_ns,
        "end": append.end_ns if told else None,
        "place": append.offset if told else None,
        "values": [append.value],
    }


def _pulls(reads: Iterable[Seen]) -> Iterator[list[Seen]]:
    """What one pull gave was there at one moment. Pulls of a history begin at different times."""
    pull: list[Seen] = []
    for seen in sorted(reads, key=lambda seen: (seen.queue, seen.begin_ns, seen.offset)):
        last = pull[-1] if pull else None
        if last and (last.queue, last.begin_ns, last.offset + 1) != (seen.queue, seen.begin_ns, seen.offset):
            yield pull
            pull = []
        pull.append(seen)
    if pull:
        yield pull

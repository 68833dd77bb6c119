"""The steps of a message, and which step a stack belongs to.

A stack is looked at from its innermost frame outwards, at first for a frame of OWN, which claims all that it calls, then for one
of FILES. What neither has is "other".
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from attrs import frozen

STEPS = {  # In the order of a message's way, with what they are on the page.
    "wait": "epoll_wait: to sleep, and to be woken",
    "arm": "trio: arm a socket again, epoll_ctl",
    "loop": "trio: find what is due, switch tasks; the read loop, with its own epoll_wait",
    "receive": "read the socket, cut frames",
    "decode": "decode requests, find the handler",
    "processor": "check, make the message and its answer",
    "verify": "verify records (slave)",
    "append": "encode, append to the log",
    "dispatch": "consume queues, index, held pulls",
    "hand": "send to the slave",
    "report": "acknowledge to the master (slave)",
    "acks": "wait for the slave's acknowledgement, and take it",
    "answer": "send answers",
    "background": "threads: flush, checkpoints, digests, watchdog",
    "other": "other",
}
NO_WAIT = ("current_time", "current_task", "current_effective_deadline")  # They are part of whoever calls them.
Frame = tuple[str, str]  # The file, and the function.


@frozen
class Rule:
    """Functions of files whose path has `part` in it; none given: all of them, but those of `without`."""

    step: str
    part: str
    functions: Collection[str] = ()
    without: Collection[str] = ()

    def takes(self, frame: Frame) -> bool:
        """True for a frame of these."""
        file, function = frame
        return self.part in file and (not self.functions or function in self.functions) and function not in self.without


OWN = (
    Rule("wait", "trio/_core/_io_epoll.py", ["get_events"]),
    Rule("arm", "trio/_core/_io_epoll.py", ["wait_readable", "_epoll_wait", "_update_registrations"]),
    Rule("background", "(another thread)"),
    Rule("background", "trio/_core/_thread_cache.py"),
    Rule("background", "trio/_threads.py"),
    Rule("loop", "/trio/", without=[*NO_WAIT, "run", "unrolled_run"]),
    Rule("answer", "cluster/remoting/connection.py", ["write", "_write", "_send_now", "uncork"]),
    Rule("hand", "ha/master/connection.py", ["_push", "_write_task", "_room", "_may_send"]),
    Rule("hand", "ha/wire/transport.py", ["send_batch", "send_batch_now", "_sendfile"]),
    Rule("acks", "ha/master/", ["_read_task", "take", "_acknowledge", "acknowledge", "check_reports"]),
    Rule("verify", "store/record/scan.py"),
    Rule("verify", "store/record/column_scan.py"),
    Rule("verify", "ha/slave/replica.py", ["_scan"]),
    Rule("report", "ha/slave/replica.py", ["_report", "_acknowledge", "_acknowledge_now", "_held"]),
    Rule("dispatch", "store/services/dispatch.py"),
    Rule("background", "store/services/flush.py", without=["wait", "is_synchronous"]),
    Rule("background", "store/util/sync.py"),
    Rule("background", "store/integrity/"),
    Rule("background", "store/recovery/", without=["note"]),
    Rule("background", "store/log/preallocate.py", without=["appended", "_wants_spare"]),
    Rule("background", "cluster/broker/watchdog.py"),
)
FILES = (
    Rule("loop", "store/util/wakeup.py"),
    Rule("loop", "ha/wire/read_loop.py"),
    Rule("dispatch", "store/queue/"),
    Rule("dispatch", "store/index/"),
    Rule("dispatch", "cluster/broker/consume/"),
    Rule("acks", "store/log/offset_waiters.py"),
    Rule("append", "/store/"),
    Rule("receive", "cluster/remoting/server.py"),
    Rule("receive", "cluster/remoting/command.py", ["feed"]),
    Rule("processor", "cluster/remoting/response_template.py"),
    Rule("other", "cluster/remoting/member_"),
    Rule("decode", "cluster/remoting/"),
    Rule("processor", "cluster/broker/processors/"),
    Rule("decode", "cluster/broker/send/templates.py"),
    Rule("processor", "cluster/broker/send/"),
    Rule("processor", "cluster/broker/stats/"),
    Rule("acks", "ha/master/group_transfer.py"),
    Rule("receive", "ha/policy/deferred_plan.py"),
    Rule("acks", "ha/policy/"),
    Rule("receive", "ha/slave/replica.py"),
    Rule("receive", "ha/wire/"),
    Rule("receive", "benchmarks/answer_only.py", ["_serve"]),
    Rule("decode", "benchmarks/answer_only.py", ["_answers", "fill", "_start"]),
    Rule("wait", "selectors.py", ["select"]),
    Rule("loop", "/trio/", without=NO_WAIT),
)


def step_of(frames: Sequence[Frame]) -> str:
    """The step of a stack whose innermost frame comes first."""
    for rules in (OWN, FILES):
        for frame in frames:
            for rule in rules:
                if rule.takes(frame):
                    return rule.step
    return "other"


def stacks_of(text: str) -> Iterable[tuple[float, list[Frame]]]:
    """The stacks that sampled/sitecustomize.py wrote, one on a line, each with the seconds of CPU time that it stands for."""
    for line in text.splitlines():
        microseconds, _, stack = line.partition(" ")
        frames = (each.rpartition(":") for each in stack.split(";"))
        yield int(microseconds) / 1e6, [(file, function) for file, _, function in frames]


def seconds(text: str) -> dict[str, float]:
    """The CPU seconds of each step, in the order of STEPS."""
    found: defaultdict[str, float] = defaultdict(float)
    for used, frames in stacks_of(text):
        found[step_of(frames)] += used
    return {step: round(found[step], 6) for step in STEPS if found[step]}


def unknown(text: str, count: int) -> list[tuple[str, int]]:
    """The most frequent stacks of "other", for those who keep the rules."""
    found = Counter(
        " < ".join(f"{file.rpartition('/')[2]}:{function}" for file, function in frames[:4])
        for _, frames in stacks_of(text)
        if step_of(frames) == "other"
    )
    return found.most_common(count)

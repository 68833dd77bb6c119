"""What a client does in one measurement: messages, time, CPU and latencies, behind a warm-up.

Only the standard library: clients of others run in environments that have nothing else of ours.
"""

import json
import time
from array import array
from math import inf
from typing import Any


class Meter:
    """Counts messages. The first one begins the warm-up, which ends after `warm_up_s`, or after a third of `messages`; `seconds`
    later, or with the last of `messages`, it is over.
    """

    def __init__(self, warm_up_s: float, seconds: float, messages: float = inf) -> None:
        self.is_over = False
        self._warm_up_s, self._seconds, self._messages = warm_up_s, seconds, messages
        self._seen = self._count = 0
        self._started = self._cpu = 0.0
        self._warm_until = self._until = inf
        self._times = array("d")
        self._result: dict[str, Any] = {}

    def note(self, count: int = 1, began: float | None = None) -> None:
        """Note messages that were answered, or came, just now; `began`: when this one was sent, by time.perf_counter()."""
        now = time.perf_counter()
        if not self._seen:
            self._warm_until = now + self._warm_up_s
        self._seen += count
        if self.is_over:
            return
        if not self._started:
            if now >= self._warm_until or self._seen >= self._messages / 3:
                self._started, self._cpu, self._until = now, time.process_time(), now + self._seconds
            return
        self._count += count
        if began is not None:
            self._times.append(now - began)
        if now >= self._until or self._seen >= self._messages:
            self._end(now)

    def _end(self, now: float) -> None:
        self._result = {
            "messages": self._count,
            "elapsed_s": round(now - self._started, 4),
            "client_cpu_s": round(time.process_time() - self._cpu, 4),
        }
        if times := sorted(self._times):
            for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99)):
                self._result[name] = round(1000 * times[min(len(times) - 1, int(len(times) * share))], 3)
        self.is_over = True  # Last: another thread shows the result then.

    def show(self) -> None:
        """Print the result, as the benchmark reads it."""
        print(json.dumps(self._result), flush=True)

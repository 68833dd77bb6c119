"""Findings of a member on its way to etcd: `twinlog doctor` asks for them, in request 20001, as the member has the files and the
network that matter. Each endpoint is asked once in KEPT_SECONDS, whoever asks how often.
"""

import trio
from attrs import define, evolve, field

from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.remoting.member_status import EtcdFindingStatus

KEPT_SECONDS = 5.0
REQUEST_MS_MAX = 1_500  # diagnose() takes twice as long at most.


@define(eq=False)
class EtcdCheck:
    """`found`: what was found last; None: nobody has looked yet."""

    config: EtcdConfig
    found: tuple[EtcdFindingStatus, ...] | None = field(default=None, init=False)
    _at: float = field(default=float("-inf"), init=False)
    _lock: trio.Lock = field(factory=trio.Lock, init=False)

    async def look(self) -> None:
        """Ask each endpoint, unless that was done a moment ago."""
        if not self.config.endpoints:
            return
        from twinlog.cluster.etcd.diagnose import diagnose  # With httpx, which most brokers do not need.

        async with self._lock:
            if trio.current_time() < self._at + KEPT_SECONDS:
                return
            bounded = evolve(self.config, request_timeout_ms=min(self.config.request_timeout_ms, REQUEST_MS_MAX))
            self.found = tuple(
                EtcdFindingStatus(
                    level=each.level, cause=each.cause, subject=each.subject, what=each.what, fix=each.fix
                )
                for each in await diagnose(bounded)
            )
            self._at = trio.current_time()

"""Consumer offsets out of a master's table: what a slave takes, and what it keeps. Pure.

A slave serves consumers while its master is away, and takes what they commit. RocketMQ's slave forgets that once the master is
back: it replaces its offsets with the master's older ones, and after the next fail-over everything is consumed again. Here an
offset goes back only when the master, running all the time, says less than before: that is a reset, made by a person. And
when another member has become master: consumers have gone on there, and what they committed here since is behind that.
Source: SlaveSynchronize.syncConsumerOffset (RocketMQ 4.9.8).
"""

from collections.abc import Mapping

from attrs import define, field

Offsets = Mapping[str, Mapping[int, int]]  # By TOPIC@GROUP and queue id.


@define(eq=False)
class MasterOffsets:
    """What the master told last, as long as it is the same process: `life` tells. `epoch` counts masters; it may be given
    where it is known from before.
    """

    epoch: int | None = None
    _life: object = field(default=None, init=False)
    _told: Offsets = field(factory=dict, init=False)

    def merge(
        self, own: Offsets, told: Offsets, life: object, *, epoch: int | None = None
    ) -> tuple[dict[str, dict[int, int]], int]:
        """Take what the master tells now; returns the entries as they are to be, and for how many queues ours is newer."""
        before = self._told if life == self._life else {}
        is_new = epoch is not None and self.epoch is not None and epoch > self.epoch
        self._life, self._told = life, told
        self.epoch = epoch if self.epoch is None or is_new else self.epoch
        merged, newer = {}, 0
        for key, queues in told.items():
            entry = dict(own.get(key, {}))
            for queue_id, offset in queues.items():
                own_offset = 0 if is_new else entry.get(queue_id, 0)
                entry[queue_id] = _merged(own_offset, before.get(key, {}).get(queue_id, 0), offset)
                newer += entry[queue_id] > offset
            merged[key] = entry
        return merged, newer

    def merge_last(self, own: Offsets, told: Offsets) -> dict[str, dict[int, int]]:
        """The same for the last thing that this master tells, which hands over."""
        return self.merge(own, told, self._life, epoch=self.epoch)[0]


def _merged(own: int, before: int, now: int) -> int:
    return now if now < before else max(own, now)

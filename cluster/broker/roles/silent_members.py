"""Members that did not answer lately: nobody waits for one of them as long as for others. Nothing is decided by it."""

from attrs import define, field

KEPT_SECONDS = 30.0


@define(eq=False)
class SilentMembers:
    """By their ids; times are monotonic."""

    _missed_at: dict[str, float] = field(factory=dict, init=False)

    def answered(self, id: str) -> None:
        """Note an answer."""
        self._missed_at.pop(id, None)

    def missed(self, id: str, now: float) -> None:
        """Note that an answer did not come."""
        self._missed_at[id] = now

    def __contains__(self, id: str) -> bool:
        return id in self._missed_at

    def forget(self, now: float) -> None:
        """Forget who did not answer long ago: it may be there again."""
        self._missed_at = {id: at for id, at in self._missed_at.items() if now < at + KEPT_SECONDS}

"""Receivers of answers, for tests."""

from attrs import define, field

from twinlog.store.log.offset_waiters import PutStatus


@define(eq=False)
class Sink:
    """Keeps each call's frames, and refusals with their status."""

    answered: list[list[bytes]] = field(factory=list)
    refused: list[tuple[list[bytes], PutStatus, str]] = field(factory=list)

    def answer(self, frames):
        self.answered.append(frames)

    def refuse(self, frames, status, reason):
        self.refused.append((frames, status, reason))

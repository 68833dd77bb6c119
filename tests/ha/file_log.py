"""A log of one file, for transports."""

from attrs import define, field

from twinlog.store.log.commit_log import FileChunk

SIZE = 1 << 20


@define(eq=False)
class FileLog:
    """Of SIZE bytes; the file may be gone."""

    fd: int
    min_offset: int = 0
    max_offset: int = SIZE
    file_size: int = SIZE
    asked: list[tuple[int, int]] = field(factory=list)
    is_gone: bool = False

    def chunk(self, offset: int, size_max: int) -> FileChunk | None:
        self.asked.append((offset, size_max))
        return None if self.is_gone else FileChunk(self.fd, offset, min(size_max, SIZE - offset))

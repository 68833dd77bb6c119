"""A second opinion on the order of properties."""

from twinlog.store.record.properties import java_hash


class JavaHashMap:
    """java.util.HashMap as far as its order goes: a table of chains that doubles and never shrinks."""

    def __init__(self):
        self.table, self.size = [[] for _ in range(16)], 0

    def _chain(self, key):
        h = java_hash(key) & 0xFFFFFFFF
        return self.table[(h ^ h >> 16) & (len(self.table) - 1)]

    def put(self, key, value):
        chain = self._chain(key)
        for pair in chain:
            if pair[0] == key:
                pair[1] = value
                return
        chain.append([key, value])
        self.size += 1
        if self.size > len(self.table) * 0.75:
            pairs = list(self.items())
            self.table = [[] for _ in range(2 * len(self.table))]
            for pair in pairs:
                self._chain(pair[0]).append(pair)

    def remove(self, key):
        chain = self._chain(key)
        kept = [pair for pair in chain if pair[0] != key]
        self.size -= len(chain) - len(kept)
        chain[:] = kept

    def items(self):
        return [pair for chain in self.table for pair in chain]

"""A map from texts to 64-bit numbers that takes about 40 bytes an entry, however long the texts.

It keeps digests in place of the texts: of a million ids two are alike with a chance of 3e-8. Knows nothing of what the
texts are.
"""

from __future__ import annotations

import hashlib
from array import array

_EMPTY = 0


def digest64(text: str) -> int:
    """A digest of a text, never 0; the same in every process."""
    data = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(data, "big") or 1


class DigestMap:
    """Text -> number below 2**64, in two flat arrays (open addressing, linear probing); nothing is ever taken out."""

    def __init__(self) -> None:
        self._keys = array("Q", bytes(8 * 1024))
        self._values = array("Q", bytes(8 * 1024))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, text: str) -> bool:
        return self.get(text) is not None

    def get(self, text: str) -> int | None:
        """The number kept for a text, or None."""
        at = self._find(digest64(text))
        return None if self._keys[at] == _EMPTY else self._values[at]

    def __setitem__(self, text: str, value: int) -> None:
        if 3 * self._count >= 2 * len(self._keys):
            self._grow()
        self._put(digest64(text), value)

    def _find(self, key: int) -> int:
        """The place of a key, or the free place where it would go."""
        mask = len(self._keys) - 1
        at = key & mask
        while self._keys[at] not in (_EMPTY, key):
            at = (at + 1) & mask
        return at

    def _put(self, key: int, value: int) -> None:
        at = self._find(key)
        self._count += self._keys[at] == _EMPTY
        self._keys[at], self._values[at] = key, value

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        self._keys, self._values = array("Q", bytes(16 * len(keys))), array("Q", bytes(16 * len(keys)))
        self._count = 0
        for key, value in zip(keys, values, strict=True):
            if key != _EMPTY:
                self._put(key, value)

"""zstd of the standard library, which has it from Python 3.14 on; before that, the package that brings the same."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, compress
else:
    from backports.zstd import ZstdDecompressor, compress

__all__ = ["ZstdDecompressor", "compress"]

"""The CRC-32 that records keep of their bodies: zlib's, computed with vector instructions.

A call for 1 KiB takes 0.2 us, and one of zlib's own 0.6: of a message on its way through a broker that is a tenth.
"""

from isal.isal_zlib import crc32 as crc32

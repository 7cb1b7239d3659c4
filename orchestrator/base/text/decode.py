"""Decode text of files that other programs wrote, in whichever encoding of Unicode."""

import codecs

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAMPLE = 4096


def decode(data: bytes) -> str:
    """Return text in UTF-8, UTF-16 or UTF-32, without a byte order mark.

    Of UTF-16 without a mark, every second byte of text in Latin letters is zero. What cannot be
    decoded is replaced: a wrong byte makes no other part of a file unreadable.
    """
    named = next((name for mark, name in _MARKS if data.startswith(mark)), None)
    even, odd = data[:_SAMPLE:2], data[1:_SAMPLE:2]
    if named is None and len(data) >= 4:
        if odd.count(0) > len(odd) // 2 and even.count(0) < len(even) // 8:
            named = "utf-16-le"
        elif even.count(0) > len(even) // 2 and odd.count(0) < len(odd) // 8:
            named = "utf-16-be"
    return data.decode(named or "utf-8", "replace")

"""Owns what an RFC 3339 date-time is, to the letter of its grammar and of the calendar.

Refuses to convert: a moment that a caller names is kept as it was written.
"""

from __future__ import annotations

import re
from typing import Final

_DATE_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAY_MINUTES: Final = 24 * 60


def is_date_time(text: str) -> bool:
    """Whether `text` is a `date-time` of RFC 3339 §5.6: `T`, seconds and an offset are needed.

    A second of 60 passes where a leap second can be: in the last minute of a UTC day.
    """
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        return False
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    offset_hour, offset_minute = int(found[8] or 0), int(found[9] or 0)
    if not 1 <= month <= 12 or not 1 <= day <= _days(year, month):
        return False
    if hour > 23 or minute > 59 or second > 60 or offset_hour > 23 or offset_minute > 59:
        return False
    if second < 60:
        return True
    offset = (offset_hour * 60 + offset_minute) * (-1 if found[7] == "-" else 1)
    return (hour * 60 + minute - offset) % _DAY_MINUTES == _DAY_MINUTES - 1


def _days(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _DAYS[month - 1]

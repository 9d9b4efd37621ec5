"""Owns how a text from outside is shown to a language model: whole, and with nothing in it that
hides, turns words about, or looks like a marker of Mesh's.

Refuses to drop a character: what may not stand as it is is shown as an escape. Seed 000,
"Describe-then-trust".
"""

from __future__ import annotations

import re
from typing import Final

# Joiners are words' own in many scripts, and hide nothing there; between ASCII they only hide.
_JOINERS: Final = "\u200c\u200d"
_HIDDEN: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
    f"|[{_JOINERS}](?=[\x00-\x7f])|(?<=[\x00-\x7f])[{_JOINERS}]"
)
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# The word of a marker may be written with letters of another script, so any short word counts. No
# row of blanks is read twice.
_LOOKS_LIKE_A_MARKER: Final = re.compile(r"\[(?=\s*+\[\s*+/?+\s*+[^\W\d_]{3,6}[\s:])")
_BRACKETS: Final = str.maketrans(
    {**dict.fromkeys("\uff3b\ufe47", "["), **dict.fromkeys("\u27e6\u301a", "[[")}
)


def shown(text: str) -> str:
    """`text` as a model may be shown it: what hides as escapes, what looks like a marker broken
    up. Brackets that look like the marker's become the plain one."""
    harmless = _CONTROL.sub(_escape, _HIDDEN.sub(_escape, text))
    return _LOOKS_LIKE_A_MARKER.sub("[\\\\", harmless.translate(_BRACKETS))


def _escape(found: re.Match[str]) -> str:
    return f"\\u{{{ord(found[0]):x}}}"

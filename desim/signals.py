"""The door for listeners of users: what hangs on a run while it plays.

See analysis/docs/howto/listen.md.
"""

from desim.arrays import Array
from desim.columns import Words
from desim.engine.settings import Settings
from desim.engine.signals import Listener, Message, Release
from desim.errors import InputError
from desim.fields import Count, Flag, NonNegative, Number, Positive, Share, Strict, Text

__all__ = [
    "Array", "Count", "Flag", "InputError", "Listener", "Message", "NonNegative", "Number",
    "Positive", "Release", "Settings", "Share", "Strict", "Text", "Words",
]  # fmt: skip

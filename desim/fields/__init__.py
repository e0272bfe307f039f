"""The types of scenario keys: they read units, bounds and short forms, and explain refusals."""

from desim.fields.numbers import (
    Bandwidth,
    BandwidthDist,
    Count,
    Duration,
    DurationDist,
    FactorDist,
    File,
    Flag,
    Folder,
    Fraction,
    NonNegative,
    Number,
    Positive,
    Rate,
    ScaleDist,
    Seconds,
    Several,
    Share,
    SizeDist,
    Speed,
    SpeedDist,
    Squared,
    Text,
    Whole,
)
from desim.fields.strict import (
    AutoShare,
    AutoStep,
    Counts,
    Form,
    Init,
    Local,
    Momentum,
    Step,
    StepOrNone,
    Strict,
)

__all__ = [
    "AutoShare", "AutoStep", "Bandwidth", "BandwidthDist", "Count", "Counts", "Duration",
    "DurationDist",
    "FactorDist", "File", "Flag", "Folder", "Form", "Fraction", "Init", "Local", "Momentum",
    "NonNegative", "Number", "Positive", "Rate", "ScaleDist", "Seconds", "Several", "Share",
    "SizeDist", "Speed", "SpeedDist", "Squared", "Step", "StepOrNone", "Strict", "Text", "Whole",
]  # fmt: skip

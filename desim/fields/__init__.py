"""The types of scenario keys: they read units, bounds and short forms, and explain refusals."""

from desim.fields.choices import Form
from desim.fields.draws import (
    BandwidthDist,
    DurationDist,
    FactorDist,
    ScaleDist,
    SizeDist,
    SpeedDist,
)
from desim.fields.methods import AutoStep, Counts, Init, Local, Momentum, Step
from desim.fields.numbers import (
    Bandwidth,
    Count,
    Duration,
    File,
    Flag,
    Folder,
    Fraction,
    NonNegative,
    Number,
    Positive,
    Rate,
    Seconds,
    Several,
    Share,
    Speed,
    Text,
    Whole,
)
from desim.fields.strict import Strict

__all__ = [
    "AutoStep", "Bandwidth", "BandwidthDist", "Count", "Counts", "Duration", "DurationDist",
    "FactorDist", "File", "Flag", "Folder", "Form", "Fraction", "Init", "Local", "Momentum",
    "NonNegative", "Number", "Positive", "Rate", "ScaleDist", "Seconds", "Several", "Share",
    "SizeDist", "Speed", "SpeedDist", "Step", "Strict", "Text", "Whole",
]  # fmt: skip

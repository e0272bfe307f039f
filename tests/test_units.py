"""Units: every conversion is exact, and what is refused is quoted with what is allowed."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutant import mutant

from desim import units

EXACT = [
    (units.seconds, "20 ms", 0.02),
    (units.seconds, "20ms", 0.02),
    (units.seconds, "  1.5e2  us ", 1.5e-4),
    (units.seconds, "3 µs", 3e-6),
    (units.seconds, "7 ns", 7e-9),
    (units.seconds, "2 min", 120.0),
    (units.seconds, "1.5 h", 5400.0),
    (units.seconds, "1 d", 86400.0),
    (units.seconds, "0", 0.0),
    (units.seconds, 3, 3.0),
    (units.seconds, np.float64(0.5), 0.5),
    (units.bits_per_second, "10 Mbit/s", 1e7),
    (units.bits_per_second, "2 kbit/s", 2e3),
    (units.bits_per_second, "1 Gbit/s", 1e9),
    (units.bits_per_second, "5 kB/s", 4e4),
    (units.bits_per_second, "5 MB/s", 4e7),
    (units.bits_per_second, "inf", math.inf),
    (units.bits_per_second, math.inf, math.inf),
    (units.rate, "50 /s", 50.0),
    (units.rate, "3/ms", 3000.0),
    (units.rate, "6 /min", 0.1),
    (units.rate, "inf", math.inf),
    (units.size, "2 GB", 2e9),
    (units.size, "1.5GiB", 1.5 * 2**30),
    (units.size, "500000000", 5e8),
    (units.fraction, "1 %", 0.01),
    (units.fraction, "100%", 1.0),
    (units.fraction, 0.3, 0.3),
]
REFUSED = [
    (units.seconds, "20 m", "found unit 'm' in '20 m'; allowed: a duration such as 20 ms"),
    (units.seconds, "20 MS", "did you mean 'ms'?"),
    (units.seconds, "-3 ms", "found '-3 ms'; allowed: a duration"),
    (units.seconds, -3, "found -3; allowed: a duration"),
    (units.seconds, math.nan, "found nan; allowed"),
    (units.seconds, "nan", "found 'nan'; allowed"),
    (units.seconds, math.inf, "found inf; allowed"),
    (units.seconds, "inf", "found 'inf'; allowed"),
    (units.seconds, True, "found true; allowed"),
    (units.seconds, None, "found null; allowed"),
    (units.seconds, [1], "found [1]; allowed"),
    (units.seconds, "", "found ''; allowed"),
    (units.seconds, "ms", "found 'ms'; allowed"),
    (units.seconds, "1e400 s", "found '1e400 s', which is too large"),
    (units.seconds, "1e308 h", "found '1e308 h', which is too large"),
    pytest.param(units.seconds, 10**400, "found 1000", id="seconds-huge"),
    (units.bits_per_second, "10 Mbps", "found unit 'Mbps'"),
    (units.bits_per_second, "10 ms", "found unit 'ms' in '10 ms'; allowed: a bandwidth"),
    (units.rate, "50 s", "found unit 's' in '50 s'; allowed: a rate"),
    (units.fraction, "101 %", "found '101 %'; allowed: a fraction from 0 to 1"),
    (units.fraction, 1.5, "found 1.5; allowed: a fraction from 0 to 1"),
]


@pytest.mark.parametrize(("read", "text", "value"), EXACT)
def test_conversion_is_exact(read, text, value):
    assert read(text) == value


def test_a_wrong_factor_is_noticed():
    wrong = mutant(units, '"min": Fraction(60)', '"min": Fraction(6)')
    assert wrong.seconds("2 min") != units.seconds("2 min") == 120.0


@pytest.mark.parametrize(("read", "text", "message"), REFUSED)
def test_refusal_says_what_was_found_and_what_is_allowed(read, text, message):
    with pytest.raises(ValueError, match="allowed") as error:
        read(text)
    assert message in str(error.value)


@given(st.decimals(0, 10**9, places=6), st.sampled_from(sorted(units.TIME)))
def test_every_duration_is_the_nearest_float(number, unit):
    exact = Fraction(number) * units.TIME[unit]
    assert units.seconds(f"{number} {unit}") == float(exact)


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text):
    try:
        told = f"allowed {units.seconds(text)}"
    except ValueError as error:
        told = str(error)
    assert "allowed" in told

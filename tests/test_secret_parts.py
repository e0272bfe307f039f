"""What the parts of a secure sum take here: `desim calibrate --here`."""

import sys

import pytest
from test_trust import scenario

from desim.deployments.measuring import secret_parts
from desim.deployments.measuring.calibration import calibrate_here
from desim.errors import InputError


def test_parts_are_measured_and_said_as_a_scenario_writes_them(monkeypatch):
    pytest.importorskip("cryptography")
    monkeypatch.setattr(secret_parts, "TIMES", 2)
    found = secret_parts.secret_parts()
    assert 1e-7 < found["share"] < found["agree"] < 1.0
    assert 1e6 < found["expand"] < 1e12
    known = secret_parts.in_words({"agree": 3.5e-5, "expand": 4.5e9, "share": 1.5e-6})
    assert known == "privacy.secure: {agree: 35 us, expand: 4.5 GB/s, share: 1.5 us}"


def test_calibrate_here_says_them_for_a_scenario_that_needs_them(monkeypatch):
    pytest.importorskip("cryptography")
    monkeypatch.setattr(secret_parts, "TIMES", 2)
    own = scenario(stop={"rounds": 4})
    own["privacy"] = {**own["privacy"], "trust": "secure-sum"}
    unseen, seen = calibrate_here(own), calibrate_here(scenario(stop={"rounds": 4}))
    assert "# privacy.secure: {agree: " in unseen.fragment()
    assert "privacy.secure" not in seen.fragment()


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for name in [one for one in sys.modules if one.startswith("cryptography.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InputError, match=r"pip install 'desim\[deploy\]'"):
        secret_parts.secret_parts()

"""Every exercise of the course: its stub, its reference and each listed mistake are judged as they
should be.
"""

import pytest

from dtlib.teaching.audit import audit
from dtlib.teaching.checks import load_all

EXERCISES = load_all()


@pytest.mark.parametrize("name", EXERCISES)
def test_the_check_tells_right_from_wrong_and_keeps_the_answer(name):
    assert audit(EXERCISES[name]) == []

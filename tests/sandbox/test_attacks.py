"""Every attack at every level that this machine can give, and the same attacks where nothing stops them."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from battery import ATTACKS, Attack
from scene import CONTROL, PLACES, EscapedError, Place

pytestmark = pytest.mark.attack

_NEED_ROOT = {"chown_a_file", "write_to_etc", "write_to_site_packages"}


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack_is_contained_and_the_next_run_is_right(scenes, place: Place, attack: Attack):
    scene = scenes.at(place)
    attack.function(scene)
    after = scene.run("import sympy\nx = sympy.Symbol('x')\nprint(sympy.factor(x**2 - 1), 6 * 7)")
    assert (after.status, after.output) == ("ok", "(x - 1)*(x + 1) 42")
    assert scene.victim_alive()
    assert scene.nothing_left() is None


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack.control], ids=lambda attack: attack.name)
def test_the_same_attack_gets_through_where_nothing_confines(scenes, attack: Attack):
    if attack.name in _NEED_ROOT and os.geteuid() != 0:
        pytest.skip(f"root is absent: {attack.name} needs it where nothing confines")
    scene = scenes.at(CONTROL)
    with pytest.raises(EscapedError):
        attack.function(scene)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_child_has_given_up_its_rights_as_seen_from_outside(scenes, place: Place):
    scene = scenes.at(place)
    scene.start(["import time\ntime.sleep(0.5)"])
    time.sleep(0.3)
    confined = 0
    for pid in scene.below():
        text = Path(f"/proc/{pid}/status").read_text()
        status = {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
        if int(status["Seccomp_filters"]) <= len(place.denied):
            continue  # the server or its wrapper
        confined += 1
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapInh"], 16) == 0
        assert (status["Seccomp"], status["NoNewPrivs"], status["Threads"]) == ("2", "1", "1")
        limits = Path(f"/proc/{pid}/limits").read_text()
        for name in ("file size", "core file size", "processes", "locked memory", "msgqueue size"):
            assert re.search(rf"^Max {name} +0 +0 ", limits, re.MULTILINE), (name, limits)
    scene.finish()
    assert 1 <= confined <= 2  # the run, and the child made ready for the next


def test_the_oracles_have_teeth():
    assert sum(attack.control for attack in ATTACKS) >= 33
    assert len(ATTACKS) >= 52

"""Scenes are expensive and shared by all attacks of a run; a place that this machine cannot give is skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scene import AbsentError, Place, Scene


class Scenes:
    """One scene a place, made on first use."""

    def __init__(self) -> None:
        self._made: dict[Place, Scene | AbsentError] = {}

    def at(self, place: Place) -> Scene:
        """The scene, mended; skips the test where the place is not to be had."""
        if place not in self._made:
            try:
                self._made[place] = Scene(place)
            except AbsentError as error:
                self._made[place] = error
        scene = self._made[place]
        if isinstance(scene, AbsentError):
            pytest.skip(f"{place}: {scene}")
        scene.renew()
        return scene

    def close(self) -> None:
        for scene in self._made.values():
            if isinstance(scene, Scene):
                scene.close()


@pytest.fixture(scope="session")
def scenes() -> Iterator[Scenes]:
    made = Scenes()
    yield made
    made.close()

"""Where an attack takes place: a host with a sandbox, a bystander, files worth having, and the view from outside."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import genprm

HERE = Path(__file__).resolve().parent
LIMITS = {"cpu_seconds": 0.5, "wall_seconds": 4.0, "memory_mb": 256, "output_bytes": 200_000}
NOBODY = 65534


class EscapedError(Exception):
    """An attack got through."""


class AbsentError(Exception):
    """This machine lacks what a place needs; says what."""


@dataclass(frozen=True)
class Place:
    """A user and a machine with more or fewer means."""

    level: str
    user: str
    denied: tuple[str, ...] = ()
    programs: tuple[str, ...] = ("bwrap", "unshare")
    kind: str = "embedded"

    def __str__(self) -> str:
        return f"{self.level}-{self.user}"


MEANS: dict[str, dict[str, Any]] = {
    "L3": {},
    "L2": {"programs": ("unshare",)},
    "L1": {"denied": ("namespaces",)},
    "L1'": {"denied": ("landlock",)},
}
PLACES = [Place(level, user, **means) for level, means in MEANS.items() for user in ("root", "nobody")]
CONTROL = Place("unsafe-subprocess", "self", kind="unsafe-subprocess")


@dataclass
class Check:
    """What the host got for a block."""

    status: str
    output: str
    seconds: float
    source: str


def as_user(user: str) -> dict[str, Any]:
    """Arguments of Popen to become a user."""
    if user == "self":
        return {}
    if user == "root":
        if os.geteuid() != 0:
            raise AbsentError(f"root is absent: the tests run as user {os.geteuid()}")
        return {}
    if os.geteuid() != 0:
        return {}  # not root already: as unprivileged as it gets
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def host_environment() -> dict[str, str]:
    paths = [str(Path(genprm.__file__).parents[1]), *{sysconfig.get_path(name) for name in ("purelib", "platlib")}]
    return {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}


def _works(python: str, user: str) -> str | None:
    """None if that user can run genprm with that interpreter, else the reason."""
    command = [python, "-W", "ignore", "-c", "import genprm.sandbox.embedded"]
    try:
        done = subprocess.run(
            command, env=host_environment(), cwd="/", capture_output=True, text=True, check=False, **as_user(user)
        )
    except OSError as error:
        return f"{python}: {error.strerror}"
    return None if done.returncode == 0 else f"{python}: {done.stderr.strip().splitlines()[-1]}"


@cache
def interpreter(user: str) -> str:
    """A Python of this version that the user may run; an unprivileged one cannot enter root's home."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    reasons = []
    found = shutil.which(version, path="/usr/bin:/usr/local/bin")
    for python in (str(Path(sys.executable).resolve()), found):
        if python is not None:
            reason = _works(python, user)
            if reason is None:
                return python
            reasons.append(reason)
    raise AbsentError(f"no {version} with genprm that {user} can run ({'; '.join(reasons)})")


def parents() -> dict[int, int]:
    """The parent of every process on the machine."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    return found


def descendants(root: int) -> set[int]:
    """All processes below one."""
    table = parents()
    below: set[int] = set()
    grown = True
    while grown:
        more = {pid for pid, parent in table.items() if (parent == root or parent in below) and pid not in below}
        below |= more
        grown = bool(more)
    return below


class Scene:
    """One place with everything running in it. Used for many attacks; `renew` mends what an attack broke."""

    def __init__(self, place: Place):
        self.place, self.control = place, place.kind != "embedded"
        self.token = f"genprm-token-{secrets.token_hex(16)}"
        self.identity = as_user(place.user)
        self.python = interpreter(place.user) if self.identity else sys.executable
        self.folder = Path(tempfile.mkdtemp(prefix="genprm-scene-"))
        self.cwd, self.home, self.programs = (self.folder / name for name in ("cwd", "home", "programs"))
        for folder in (self.cwd, self.home, self.programs):
            folder.mkdir()
        for name in place.programs:
            if (program := shutil.which(name)) is None:
                self._remove()
                raise AbsentError(f"{name} is not installed")
            (self.programs / name).symlink_to(program)
        self.secret = self.cwd / "secret.txt"
        self.secret.write_text(f"the secret is {self.token}\n")
        self.prey = self.cwd / "prey.txt"
        self.reset_prey()
        self.hand_over(self.folder, *self.folder.iterdir(), *self.cwd.iterdir())
        self.victim = self._start_victim()
        try:
            self.host = self._start_host()
        except BaseException:
            self.close()
            raise
        self.run("1 + 1")
        time.sleep(0.5)  # the next child is being made ready
        self.settled = len(descendants(self.host.pid))
        self.descriptors = len(list(Path(f"/proc/{self.host.pid}/fd").iterdir()))

    # ---- the means of attacks

    def run(self, code: str, *, limits: dict[str, Any] | None = None, **names: Any) -> Check:
        """Run one block in a session of its own; `names` are variables set before it."""
        return self.run_blocks([code], limits=limits, **names)[0]

    def run_blocks(self, blocks: list[str], *, limits: dict[str, Any] | None = None, **names: Any) -> list[Check]:
        """Run blocks in one session."""
        self.start(blocks, limits=limits, **names)
        return self.finish()

    def start(self, blocks: list[str], *, limits: dict[str, Any] | None = None, **names: Any) -> None:
        """Begin, and return while the code runs."""
        given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
        request = {"blocks": [given + blocks[0], *blocks[1:]], "limits": limits}
        assert self.host.stdin is not None
        self.host.stdin.write(json.dumps(request) + "\n")
        self.host.stdin.flush()

    def finish(self) -> list[Check]:
        """The result of `start`."""
        answer = self._hear(60)
        self.servers, self.elapsed = answer["servers"], answer["elapsed"]
        return [Check(**check) for check in answer["checks"]]

    def busy(self) -> bool:
        """Whether the started code still runs."""
        return not select.select([self.host.stdout], [], [], 0)[0]

    def contained(self, held: bool, what: str) -> None:
        """The oracle's word."""
        if not held:
            raise EscapedError(f"{self.place}: {what}")

    # ---- the view from outside

    def below(self) -> set[int]:
        """Processes below the host: the sandbox' own and whatever hostile code has started."""
        return descendants(self.host.pid)

    def victim_alive(self) -> bool:
        """Whether the bystander lives, is not stopped, and still holds its secret."""
        if self.victim.poll() is not None:
            return False
        assert self.victim.stdin is not None
        self.victim.stdin.write("?\n")
        self.victim.stdin.flush()
        if not select.select([self.victim.stdout], [], [], 2)[0]:
            return False
        assert self.victim.stdout is not None
        return self.victim.stdout.readline().strip() == self.token

    def nothing_left(self) -> str | None:
        """What an attack has left behind, once things have settled; None if nothing."""
        end = time.monotonic() + 5
        while True:
            processes = len(self.below()) - self.settled
            descriptors = len(list(Path(f"/proc/{self.host.pid}/fd").iterdir())) - self.descriptors
            if processes <= 0 and descriptors <= 0:
                return None
            if time.monotonic() > end:
                return f"{processes} processes and {descriptors} descriptors"
            time.sleep(0.02)

    # ---- setting and clearing the stage

    def reset_prey(self) -> None:
        """The file that attacks try to change."""
        self.prey.unlink(missing_ok=True)
        self.prey.write_text("prey")
        self.prey.chmod(0o644)
        os.utime(self.prey, (1_000_000_000, 1_000_000_000))
        self.hand_over(self.prey)

    def hand_over(self, *paths: Path) -> None:
        """Give files to the place's user, so that only the sandbox stands in the way."""
        if "user" in self.identity:
            for path in paths:
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)

    def _start_victim(self) -> subprocess.Popen[str]:
        victim = subprocess.Popen(
            [self.python, str(HERE / "victim.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={"GENPRM_TEST_TOKEN": self.token},
            **self.identity,
        )
        assert victim.stdout is not None
        self.address = int(victim.stdout.readline())
        return victim

    def _start_host(self) -> subprocess.Popen[str]:
        options = {"kind": self.place.kind, "level": None, "limits": LIMITS}
        command = [self.python, str(HERE / "deny.py"), *self.place.denied, "--", self.python, str(HERE / "host.py")]
        self.host = subprocess.Popen(
            [*command, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self.cwd,
            env={
                **host_environment(),
                "GENPRM_TEST_TOKEN": self.token,
                "HOME": str(self.home),
                "PATH": str(self.programs),
            },
            **self.identity,
        )
        hello = self._hear(90)
        if "unavailable" in hello:
            raise AbsentError(hello["unavailable"])
        self.servers = hello["servers"]
        if hello["level"] != self.place.level:
            raise AbsentError(f"this machine gives level {hello['level']} where {self.place.level} was to be tested")
        return self.host

    def _hear(self, seconds: float) -> dict[str, Any]:
        if not select.select([self.host.stdout], [], [], seconds)[0]:
            raise EscapedError(f"{self.place}: the host hangs")
        assert self.host.stdout is not None
        line = self.host.stdout.readline()
        if not line:
            raise EscapedError(f"{self.place}: the host has ended with status {self.host.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def renew(self) -> None:
        """Replace a bystander or host that an attack has ended."""
        if self.victim.poll() is not None or not self.victim_alive():
            self._end(self.victim)
            self.victim = self._start_victim()
        if self.host.poll() is not None:
            self._end(self.host)
            self.host = self._start_host()
        self.reset_prey()

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        for pid in descendants(process.pid):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        process.kill()
        process.communicate()

    def _remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """End everything."""
        self._end(self.victim)
        if hasattr(self, "host"):
            if self.host.poll() is None:
                assert self.host.stdin is not None
                self.host.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.host.wait(10)
                self.host.stdin = None
            self._end(self.host)
        self._remove()

"""The attacks. Each is a function that makes one attempt in a scene and asks, from outside, whether it got through.

They are made so that letting one through does little harm: the control runs them where nothing stops them.
"""

from __future__ import annotations

import secrets
import socket
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scene import Scene

Function = Callable[[Scene], None]


@dataclass(frozen=True)
class Attack:
    """One attempt."""

    function: Function
    control: bool
    """Whether it gets through a plain subprocess, which shows that its oracle can see."""

    @property
    def name(self) -> str:
        return self.function.__name__


ATTACKS: list[Attack] = []


def attack(*, control: bool = True) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        ATTACKS.append(Attack(function, control))
        return function

    return register


STATUSES = ("ok", "error", "timeout", "memory", "output_limit", "died")
FIND_TOKEN = """
import re
PATTERN = rb"genprm-token-[0-9a-f]{32}"
"""


def no_token(scene: Scene, code: str, **names: object) -> None:
    check = scene.run(FIND_TOKEN + code, **names)
    scene.contained(scene.token not in check.output, f"the secret was read: {check.output[:200]}")


def stopped(scene: Scene, code: str, *statuses: str, **limits: float) -> None:
    check = scene.run(code, limits=limits or None)
    allowed = 1.0 + (limits.get("wall_seconds") or 4.0)
    scene.contained(check.status in statuses, f"it ended as {check.status}: {check.output[-200:]}")
    scene.contained(scene.elapsed < allowed + 2, f"it took {scene.elapsed:.1f} s")


# ---- files


@attack()
def read_etc_passwd(scene: Scene) -> None:
    check = scene.run("print(open('/etc/passwd').read())")
    scene.contained("root:" not in check.output, "read /etc/passwd")


@attack()
def read_a_secret_in_the_parents_directory(scene: Scene) -> None:
    no_token(scene, "print(open(PATH).read())", PATH=str(scene.secret))


@attack()
def list_the_parents_directory(scene: Scene) -> None:
    check = scene.run("import os\nprint(os.listdir(PATH), os.listdir('.'))", PATH=str(scene.cwd))
    scene.contained(scene.secret.name not in check.output, "listed the directory")


def write_into(scene: Scene, folder: str) -> None:
    path = Path(folder) / f"genprm-attack-{secrets.token_hex(8)}"
    scene.run(
        "import os\n"
        "try: os.close(os.open(PATH, os.O_CREAT | os.O_WRONLY))\n"
        "except OSError: pass\n"
        "try: open(PATH, 'x').write('here')\n"
        "except OSError: pass\n"
        "try: os.mkdir(PATH)\n"
        "except OSError: pass\n"
        "try: os.mkfifo(PATH)\n"
        "except OSError: pass\n"
        "os.symlink('/', PATH)",
        PATH=str(path),
    )
    there = path.exists() or path.is_symlink()
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    elif there:
        path.unlink()
    scene.contained(not there, f"wrote {path}")


@attack()
def write_to_the_parents_directory(scene: Scene) -> None:
    write_into(scene, str(scene.cwd))


@attack()
def write_to_tmp(scene: Scene) -> None:
    write_into(scene, "/tmp")


@attack()
def write_to_var_tmp(scene: Scene) -> None:
    write_into(scene, "/var/tmp")


@attack()
def write_to_dev_shm(scene: Scene) -> None:
    write_into(scene, "/dev/shm")


@attack()
def write_to_the_home_directory(scene: Scene) -> None:
    write_into(scene, str(scene.home))


@attack()
def write_to_etc(scene: Scene) -> None:
    write_into(scene, "/etc")


@attack()
def write_to_site_packages(scene: Scene) -> None:
    write_into(scene, sysconfig.get_path("purelib"))


def prey_unchanged(scene: Scene, code: str) -> None:
    before = scene.prey.stat()
    scene.run(f"import os, time\n{code}", PATH=str(scene.prey))
    there = scene.prey.exists() and scene.prey.read_text() == "prey"
    after = scene.prey.stat() if there else None
    same = after is not None and all(
        getattr(before, name) == getattr(after, name) for name in ("st_mode", "st_uid", "st_gid", "st_mtime_ns")
    )
    for other in (scene.prey.with_suffix(".taken"), scene.home / "taken"):
        other.unlink(missing_ok=True)
    scene.contained(same, f"the file was changed by: {code}")


@attack()
def delete_a_file(scene: Scene) -> None:
    prey_unchanged(scene, "os.unlink(PATH)")


@attack()
def rename_a_file(scene: Scene) -> None:
    prey_unchanged(scene, "os.rename(PATH, PATH.replace('.txt', '.taken'))")


@attack()
def truncate_a_file(scene: Scene) -> None:
    prey_unchanged(scene, "os.truncate(PATH, 0)")


@attack()
def open_a_file_with_truncation(scene: Scene) -> None:
    prey_unchanged(scene, "os.open(PATH, os.O_RDONLY | os.O_TRUNC)")


@attack()
def overwrite_a_file_in_place(scene: Scene) -> None:
    prey_unchanged(scene, "os.write(os.open(PATH, os.O_RDWR), b'XXXX')")


@attack()
def chmod_a_file(scene: Scene) -> None:
    prey_unchanged(scene, "os.chmod(PATH, 0o4777)")


@attack()
def chown_a_file(scene: Scene) -> None:
    prey_unchanged(scene, "os.chown(PATH, 12345, 12345)")


@attack()
def utime_a_file(scene: Scene) -> None:
    prey_unchanged(scene, "os.utime(PATH, (1, 1))")


@attack()
def setxattr_on_a_file(scene: Scene) -> None:
    import os

    scene.run("import os\nos.setxattr(PATH, 'user.attack', b'1')", PATH=str(scene.prey))
    scene.contained("user.attack" not in os.listxattr(scene.prey), "set an extended attribute")


@attack()
def link_a_file(scene: Scene) -> None:
    scene.run("import os\nos.link(PATH, PATH.replace('.txt', '.taken'))", PATH=str(scene.prey))
    links = scene.prey.stat().st_nlink
    scene.prey.with_suffix(".taken").unlink(missing_ok=True)
    scene.contained(links == 1, "made a hard link")


@attack()
def escape_through_a_symlink(scene: Scene) -> None:
    link = scene.home / "link"
    link.unlink(missing_ok=True)
    code = "import os\ntry: os.symlink(PATH, LINK)\nfinally: print(open(LINK).read())"
    no_token(scene, code, PATH=str(scene.secret), LINK=str(link))


@attack()
def escape_through_proc_self_root(scene: Scene) -> None:
    no_token(scene, "print(open('/proc/self/root' + PATH).read())", PATH=str(scene.secret))


@attack()
def escape_through_dot_dot(scene: Scene) -> None:
    code = """
import os, sympy
base = os.path.dirname(sympy.__file__)
print(open(base + '/..' * base.count('/') + PATH).read())
"""
    no_token(scene, code, PATH=str(scene.secret))


@attack()
def fill_the_disk(scene: Scene) -> None:
    folders = [str(scene.cwd), str(scene.home), "/tmp", "/dev/shm"]
    name = f"genprm-attack-{secrets.token_hex(8)}"
    scene.run(
        "for folder in FOLDERS:\n"
        "    try:\n"
        "        with open(f'{folder}/{NAME}', 'wb') as file:\n"
        "            file.write(bytes(1 << 20) * 20)\n"
        "    except OSError: pass\n",
        FOLDERS=folders,
        NAME=name,
    )
    written = [path for path in (Path(folder) / name for folder in folders) if path.exists()]
    for path in written:
        path.unlink()
    scene.contained(not written, f"wrote {written}")


@attack()
def stat_a_secret(scene: Scene) -> None:
    size = scene.secret.stat().st_size
    check = scene.run("import os\nprint('size', os.stat(PATH).st_size)", PATH=str(scene.secret))
    seen = f"size {size}" in check.output
    if scene.place.level in ("L1", "L2"):  # the documented gap: that a file is there, and no more than that
        assert seen, "the gap is closed: say so in the docs"
        return
    scene.contained(not seen, "the file's size was seen")


@attack()
def read_proc(scene: Scene) -> None:
    code = """
import glob
for path in ["/proc/meminfo", "/proc/mounts", "/proc/self/status", "/proc/net/tcp", "/proc/self/maps",
             "/proc/self/cmdline", "/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"]:
    try:
        print("READ", path, len(open(path).read()))
    except OSError:
        pass
"""
    check = scene.run(code)
    scene.contained("READ" not in check.output, f"read {check.output}")


# ---- secrets


@attack()
def read_the_environment(scene: Scene) -> None:
    no_token(scene, "import os\nprint(os.environ)")


@attack()
def read_the_c_librarys_environment(scene: Scene) -> None:
    code = """
import ctypes
environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
index = 0
while environ[index]:
    print(environ[index]); index += 1
"""
    no_token(scene, code)


@attack()
def read_every_process_environment(scene: Scene) -> None:
    code = """
import glob
for path in glob.glob("/proc/*/environ") + [f"/proc/{pid}/environ" for pid in PIDS]:
    try:
        print(re.findall(PATTERN, open(path, "rb").read()))
    except OSError:
        pass
"""
    no_token(scene, code, PIDS=[scene.host.pid, scene.victim.pid, *scene.servers])


@attack()
def read_another_process_memory(scene: Scene) -> None:
    code = """
import os
for pid in [os.getppid(), *PIDS]:
    try:
        with open(f"/proc/{pid}/mem", "rb") as file:
            file.seek(ADDRESS)
            print(re.findall(PATTERN, file.read(64)))
    except (OSError, ValueError):
        pass
"""
    no_token(scene, code, PIDS=[scene.victim.pid, *scene.servers], ADDRESS=scene.address)


@attack()
def process_vm_readv(scene: Scene) -> None:
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(64)
class IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
local, remote = IoVec(ctypes.addressof(buffer), 64), IoVec(ADDRESS, 64)
print(libc.process_vm_readv(PID, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0), buffer.value)
"""
    no_token(scene, code, PID=scene.victim.pid, ADDRESS=scene.address)


@attack()
def ptrace_a_process(scene: Scene) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(16, PID, None, None) == 0:
    os.waitpid(PID, 0)
    libc.ptrace(4, PID, ADDRESS, 0x4141414141414141)
    libc.ptrace(17, PID, None, None)
"""
    scene.run(code, PID=scene.victim.pid, ADDRESS=scene.address)
    scene.contained(scene.victim_alive(), "the bystander's memory was written")


@attack(control=False)  # a fresh interpreter inherits no memory; the fork server's children do
def search_all_objects_for_secrets_and_other_sessions(scene: Scene) -> None:
    nonce = f"genprm-nonce-{secrets.token_hex(16)}"
    scene.run(f"earlier = {nonce!r}\nprint(earlier)")
    code = """
import gc, re
seen = set()
def look(thing):
    if isinstance(thing, (str, bytes)):
        text = thing if isinstance(thing, str) else thing.decode("latin-1")
        seen.update(re.findall("genprm-(?:nonce|token)-[0-9a-f]{32}", text))
for thing in gc.get_objects():
    look(repr(thing) if isinstance(thing, (list, tuple)) and len(thing) < 50 else "")
    if isinstance(thing, dict):
        for key, value in list(thing.items()):
            look(key), look(value)
print(sorted(seen))
"""
    check = scene.run(code, limits={"cpu_seconds": 20.0, "wall_seconds": 40.0})
    scene.contained("[]" in check.output, f"found {check.output[-300:]}")


@attack(control=False)
def walk_the_frames_into_the_server(scene: Scene) -> None:
    code = """
import sys, re
frame, found = sys._getframe(), []
while frame is not None:
    for space in (frame.f_locals, frame.f_globals):
        for value in list(space.values()):
            if frame.f_code.co_filename[:6] != "<block":
                found += re.findall(r"genprm-token-[0-9a-f]{32}", repr(value)[:100000])
    frame = frame.f_back
print(found)
"""
    check = scene.run(code)
    scene.contained(scene.token not in check.output, "the secret was read")
    scene.contained(check.output == "[]", f"found {check.output}")


@attack(control=False)
def use_leaked_descriptors(scene: Scene) -> None:
    code = """
import os
found = []
for number in range(1024):
    try:
        os.fstat(number)
        found.append(number)
    except OSError:
        pass
print(found)
"""
    check = scene.run(code)
    scene.contained(check.output == "[0, 1, 2, 3]", f"open descriptors: {check.output}")


# ---- network


@attack()
def connect_by_tcp(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.3)
        code = "import socket\nsocket.create_connection(('127.0.0.1', PORT), 1).send(b'x')"
        scene.run(code, PORT=listener.getsockname()[1])
        try:
            listener.accept()[0].close()
        except TimeoutError:
            return
        scene.contained(False, "connected")


@attack()
def send_by_udp(scene: Scene) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(0.3)
        code = "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))"
        scene.run(code, PORT=listener.getsockname()[1])
        try:
            listener.recv(10)
        except TimeoutError:
            return
        scene.contained(False, "sent")


def reach_unix_socket(scene: Scene, name: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(name)
        listener.listen()
        if not name.startswith("\0"):
            Path(name).chmod(0o777)
        listener.settimeout(0.3)
        scene.run("import socket\nsocket.socket(socket.AF_UNIX).connect(NAME)", NAME=name)
        try:
            listener.accept()[0].close()
        except TimeoutError:
            return
        finally:
            if not name.startswith("\0"):
                Path(name).unlink()
        scene.contained(False, "connected")


@attack()
def connect_to_an_abstract_socket(scene: Scene) -> None:
    reach_unix_socket(scene, f"\0genprm-attack-{secrets.token_hex(8)}")


@attack()
def connect_to_a_socket_in_the_file_system(scene: Scene) -> None:
    reach_unix_socket(scene, str(scene.home / f"socket-{secrets.token_hex(4)}"))


# ---- processes


def most_processes(scene: Scene, code: str) -> int:
    scene.start([code])
    most = 0
    while scene.busy():
        most = max(most, len(scene.below()))
        time.sleep(0.005)
    scene.finish()
    return most


@attack()
def fork_bomb(scene: Scene) -> None:
    code = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        time.sleep(1.5)
        os._exit(0)
time.sleep(0.5)
"""
    most = most_processes(scene, code)
    scene.contained(most <= scene.settled + 3, f"{most} processes")


@attack()
def five_thousand_threads(scene: Scene) -> None:
    code = """
import threading, time
for _ in range(COUNT):
    threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
time.sleep(0.5)
"""
    scene.start([code], COUNT=100 if scene.control else 5_000)
    most = 0
    while scene.busy():
        for pid in scene.below():
            try:
                most = max(most, len(list(Path(f"/proc/{pid}/task").iterdir())))
            except OSError:
                continue
        time.sleep(0.005)
    scene.finish()
    scene.contained(most < 10, f"{most} threads")


@attack()
def leave_a_daemon_behind(scene: Scene) -> None:
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        time.sleep(3)
    os._exit(0)
time.sleep(0.1)
"""
    scene.run(code)
    time.sleep(0.2)
    left = len(scene.below()) - scene.settled
    scene.contained(left <= 1, "a daemon outlived the run")


def run_a_program(scene: Scene, code: str) -> None:
    path = scene.home / f"ran-{secrets.token_hex(4)}"
    scene.run(f"import os, subprocess, ctypes\n{code}", PATH=str(path))
    there = path.exists()
    path.unlink(missing_ok=True)
    scene.contained(not there, "a program ran")


@attack()
def run_a_shell(scene: Scene) -> None:
    run_a_program(scene, "subprocess.run(['/bin/sh', '-c', f'echo x > {PATH}'])")


@attack()
def run_a_shell_from_c(scene: Scene) -> None:
    run_a_program(scene, "ctypes.CDLL(None).system(f'echo x > {PATH}'.encode())")


@attack()
def replace_the_process_by_a_shell(scene: Scene) -> None:
    run_a_program(scene, "os.execv('/bin/sh', ['sh', '-c', f'echo x > {PATH}'])")


@attack()
def posix_spawn_a_shell(scene: Scene) -> None:
    run_a_program(scene, "os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', f'echo x > {PATH}'], {}), 0)")


@attack()
def kill_a_bystander(scene: Scene) -> None:
    scene.run("import os\nfor number in (15, 19, 9): os.kill(PID, number)", PID=scene.victim.pid)
    scene.contained(scene.victim_alive(), "the bystander was killed")


@attack()
def kill_a_bystander_by_thread_id(scene: Scene) -> None:
    code = """
import ctypes
libc = ctypes.CDLL(None)
libc.tgkill(PID, PID, 9), libc.syscall(200, PID, 9), libc.syscall(130, PID, 9)
"""
    scene.run(code, PID=scene.victim.pid)
    scene.contained(scene.victim_alive(), "the bystander was killed")


@attack()
def kill_a_bystander_by_pidfd(scene: Scene) -> None:
    scene.run("import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(PID), 9)", PID=scene.victim.pid)
    scene.contained(scene.victim_alive(), "the bystander was killed")


@attack()
def kill_a_bystander_by_descriptor_signals(scene: Scene) -> None:
    code = """
import fcntl, os, time
read, write = os.pipe()
for call in ((8, PID), (10, 9), (4, os.O_ASYNC | os.O_NONBLOCK)):  # F_SETOWN, F_SETSIG, F_SETFL
    fcntl.fcntl(read, *call)
os.write(write, b"x")
time.sleep(0.1)
"""
    scene.run(code, PID=scene.victim.pid)
    scene.contained(scene.victim_alive(), "the bystander was killed")


@attack(control=False)  # it would end the test's own host
def kill_the_server_and_its_client(scene: Scene) -> None:
    before = list(scene.servers)
    code = """
import os, signal
for pid in [os.getppid(), 1, 0, -1, *PIDS]:
    for number in (9, 15, 19):
        try: os.kill(pid, number)
        except OSError: pass
        try: signal.pidfd_send_signal(os.pidfd_open(pid), number)
        except (OSError, AttributeError, ValueError): pass
"""
    scene.run(code, PIDS=[scene.host.pid, *scene.servers])
    scene.run("1")
    scene.contained(scene.servers == before, "the server was killed")


@attack(control=False)  # there is no waiting parent that could mistake a stopped process for a long one
def stop_oneself(scene: Scene) -> None:
    stopped(scene, "import signal\nsignal.raise_signal(signal.SIGSTOP)", "timeout", wall_seconds=0.7)


@attack()
def unshare_and_mount(scene: Scene) -> None:
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
results = [libc.unshare(0x10000000 | 0x20000), libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), libc.chroot(b"/")]
print("results", results)
"""
    check = scene.run(code)
    scene.contained(check.output == "results [-1, -1, -1]", f"new rights: {check.output}")


@attack()
def change_a_bystanders_limits(scene: Scene) -> None:
    before = Path(f"/proc/{scene.victim.pid}/limits").read_text()
    scene.run("import resource\nresource.prlimit(PID, resource.RLIMIT_NOFILE, (7, 7))", PID=scene.victim.pid)
    after = Path(f"/proc/{scene.victim.pid}/limits").read_text()
    if after != before:
        scene.victim.kill()
    scene.contained(after == before, f"limits are {after}")


@attack()
def raise_ones_own_limits(scene: Scene) -> None:
    code = """
import resource
for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):
    try: resource.setrlimit(limit, resource.getrlimit(limit)); print("SET", limit)
    except (OSError, ValueError): pass
"""
    check = scene.run(code)
    scene.contained("SET" not in check.output, check.output)


@attack()
def leave_shared_memory_behind(scene: Scene) -> None:
    import ctypes

    key = secrets.randbelow(1 << 30) + 1
    scene.run("import ctypes\nprint(ctypes.CDLL(None).shmget(KEY, 4096, 0o1666))", KEY=key)
    libc = ctypes.CDLL(None)
    segment = libc.shmget(key, 0, 0)
    if segment >= 0:
        libc.shmctl(segment, 0, None)
    scene.contained(segment < 0, "a shared memory segment was left")


RISKY = """
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
assert platform.machine() == "x86_64"
CALLS = {
    "socket": (41, -1, -1, -1), "socketpair": (53, -1, -1, -1, 0), "connect": (42, -1, 0, 0),
    "sendmsg": (46, -1, 0, 0), "recvmsg": (47, -1, 0, 0), "bind": (49, -1, 0, 0),
    "ptrace": (101, -1, 0, 0, 0), "mount": (165, 0, 0, 0, 0, 0), "umount2": (166, 0, 0),
    "pivot_root": (155, 0, 0), "chroot": (161, 0), "open_tree": (428, -1, 0, 0),
    "move_mount": (429, -1, 0, -1, 0, 0), "fsopen": (430, 0, 0), "mount_setattr": (442, -1, 0, 0, 0, 0),
    "bpf": (321, -1, 0, 0), "keyctl": (250, -1, 0, 0, 0, 0), "add_key": (248, 0, 0, 0, 0, 0),
    "request_key": (249, 0, 0, 0, 0), "io_uring_setup": (425, 0, 0), "io_uring_enter": (426, -1, 0, 0, 0, 0),
    "io_uring_register": (427, -1, 0, 0, 0), "userfaultfd": (323, -1), "memfd_create": (319, 0, 0),
    "memfd_secret": (447, -1), "shmget": (29, 1, 0, 0), "shmat": (30, -1, 0, 0),
    "msgget": (68, 0x7ffffff1, 0), "semget": (64, 0x7ffffff1, 0, 0), "mq_open": (240, 0, 0, 0, 0),
    "inotify_init1": (294, -1), "fanotify_init": (300, -1, -1), "perf_event_open": (298, 0, 0, 0, 0, 0),
    "process_vm_readv": (310, -1, 0, 0, 0, 0, 0), "process_vm_writev": (311, -1, 0, 0, 0, 0, 0),
    "process_madvise": (440, -1, 0, 0, 0, 0), "kcmp": (312, -1, -1, 0, 0, 0), "init_module": (175, 0, 0, 0),
    "finit_module": (313, -1, 0, 0), "kexec_load": (246, 0, 0, 0, 0), "swapon": (167, 0, 0),
    "reboot": (169, 0, 0, 0, 0), "sethostname": (170, 0, -1), "setns": (308, -1, 0), "unshare": (272, -1),
    "clone3": (435, 0, 0), "execveat": (322, -1, 0, 0, 0, 0), "open_by_handle_at": (304, -1, 0, 0),
    "name_to_handle_at": (303, -1, 0, 0, 0, 0), "landlock_create_ruleset": (444, 0, 0, 0),
    "seccomp": (317, -1, 0, 0), "prctl": (157, -1, 0, 0, 0, 0), "setresuid": (117, -1, -1, -1),
    "setgroups": (116, -1, 0), "capset": (126, 0, 0), "kill": (62, 0x7fffffff, 0),
    "tkill": (200, 0x7fffffff, 0), "rt_sigqueueinfo": (129, 0x7ffffffe, 0, 0),
    "rt_tgsigqueueinfo": (297, -1, -1, 0, 0), "pidfd_open": (434, 0x7ffffffe, 0),
    "pidfd_send_signal": (424, -1, 0, 0, 0), "pidfd_getfd": (438, -1, 0, 0), "chmod": (90, 0, 0),
    "fchmod": (91, -1, 0), "fchmodat": (268, -1, 0, 0), "chown": (92, 0, 0, 0), "fchown": (93, -1, 0, 0),
    "fchownat": (260, -1, 0, 0, 0, 0), "link": (86, 0, 0), "linkat": (265, -1, 0, -1, 0, 0),
    "unlink": (87, 0), "unlinkat": (263, -1, 0, 0), "rename": (82, 0, 0), "renameat2": (316, -1, 0, -1, 0, 0),
    "mkdir": (83, 0, 0), "mkdirat": (258, -1, 0, 0), "rmdir": (84, 0), "mknod": (133, 0, 0, 0),
    "symlink": (88, 0, 0), "symlinkat": (266, 0, -1, 0), "truncate": (76, 0, -1), "ftruncate": (77, -1, 0),
    "fallocate": (285, -1, 0, 0, 0), "utimensat": (280, -1, 0, 0, 0), "setxattr": (188, 0, 0, 0, 0, 0),
    "fsetxattr": (190, -1, 0, 0, 0, 0), "removexattr": (197, 0, 0), "sendfile": (40, -1, -1, 0, 0),
    "splice": (275, -1, 0, -1, 0, 0, 0), "copy_file_range": (326, -1, 0, -1, 0, 0, 0),
    "timer_create": (222, -1, 0, 0), "timerfd_create": (283, -1, 0), "eventfd2": (290, 0, -1),
    "epoll_create1": (291, -1), "sched_setaffinity": (203, -1, 0, 0), "sched_setscheduler": (144, -1, 0, 0),
    "setpriority": (141, -1, 0, 0), "ioprio_set": (251, -1, 0, 0), "mlock": (149, 0, 0),
    "mlockall": (151, -1), "mbind": (237, 0, 0, 0, 0, 0, 0), "migrate_pages": (256, -1, 0, 0, 0),
    "creat": (85, 0, 0), "openat2": (437, -1, 0, 0, 0), "readlink": (89, 0, 0, 0),
    "getxattr": (191, 0, 0, 0, 0), "statfs": (137, 0, 0), "syslog": (103, -1, 0, 0),
    "quotactl": (179, -1, 0, 0, 0), "modify_ldt": (154, -1, 0, 0), "iopl": (172, -1),
    "arch_prctl": (158, -1, 0), "personality": (135, 0xffffffff), "clock_settime": (227, -1, 0),
    "fcntl F_SETOWN": (72, 1, 8, 0x7ffffffe), "fcntl F_SETLEASE": (72, 1, 1024, 9),
    "fcntl F_SETPIPE_SZ": (72, 1, 1031, -1), "ioctl TIOCSTI": (16, 1, 0x5412, 0),
    "ioctl FIOASYNC": (16, 1, 0x5452, 0), "open for writing": (2, 0, 1, 0),
    "prlimit64 of another": (302, 0x7ffffffe, 7, 0, 0), "tgkill of another": (234, 0x7ffffffe, 0x7ffffffe, 0),
}
reached = []
for name, (number, *arguments) in CALLS.items():
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(value) for value in arguments])
    if result >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        reached.append(name)
print("reached", reached)
"""


@attack()
def reach_risky_system_calls(scene: Scene) -> None:
    import platform

    import pytest

    if platform.machine() != "x86_64":
        pytest.skip(f"the list of risky calls is for x86_64, this is {platform.machine()}")
    check = scene.run(RISKY)
    scene.contained(check.output == "reached []", check.output)


@attack(control=False)  # a plain process is killed by nothing for this, but gains nothing either
def call_the_kernel_as_another_architecture(scene: Scene) -> None:
    # x32 socket(): the same kernel entry under another number.
    code = "import ctypes\nprint('ALIVE', ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 + 41), 2, 1, 0))"
    check = scene.run(code)
    scene.contained("ALIVE" not in check.output and check.status == "died", f"{check.status}: {check.output}")


# ---- resources


@attack()
def allocate_ten_gigabytes(scene: Scene) -> None:
    check = scene.run("x = bytearray(SIZE)\nprint(len(x))", SIZE=(1 << 30) if scene.control else (10 << 30))
    scene.contained(check.status == "memory", f"it ended as {check.status}")


@attack()
def allocate_in_small_pieces(scene: Scene) -> None:
    code = "x = []\nfor _ in range(600): x.append(bytes(1 << 20))\nprint(len(x))"
    check = scene.run(code, limits={"cpu_seconds": 5.0})
    scene.contained(check.status in ("memory", "died"), f"it ended as {check.status}")


@attack()
def allocate_in_a_memory_file(scene: Scene) -> None:
    check = scene.run("import os\nprint('ma' + 'de', os.write(os.memfd_create('x'), bytes(1 << 20)))")
    scene.contained("made" not in check.output, "made a memory file")


@attack()
def open_many_files(scene: Scene) -> None:
    code = """
import os
files = []
try:
    while len(files) < 500: files.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
print(len(files))
"""
    check = scene.run(code)
    scene.contained(int(check.output) <= 64, f"opened {check.output}")


@attack(control=False)  # a plain subprocess can be killed by the clock too
def loop_for_ever(scene: Scene) -> None:
    stopped(scene, "while True: pass", "timeout")


@attack(control=False)
def loop_for_ever_inside_c(scene: Scene) -> None:
    stopped(scene, "7 ** (10 ** 8)", "timeout", "memory")


@attack(control=False)
def sleep_for_ever(scene: Scene) -> None:
    stopped(scene, "import time\ntime.sleep(3600)", "timeout", wall_seconds=0.7)


@attack(control=False)
def ignore_all_signals_and_loop(scene: Scene) -> None:
    code = """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True:
    try:
        while True: pass
    except BaseException: pass
"""
    stopped(scene, code, "timeout")


@attack(control=False)
def close_the_output_and_loop(scene: Scene) -> None:
    stopped(scene, "import os\nos.close(1); os.close(2)\nwhile True: pass", "timeout")


@attack(control=False)
def close_everything_and_loop(scene: Scene) -> None:
    stopped(scene, "import os\nos.closerange(0, 64)\nwhile True: pass", "timeout")


@attack(control=False)
def print_a_gigabyte(scene: Scene) -> None:
    stopped(scene, "line = 'x' * 65536\nfor _ in range(1 << 14): print(line)", "output_limit")


@attack(control=False)  # the cleaning is the client's and the same for every kind
def print_what_acts_on_terminals_and_prompts(scene: Scene) -> None:
    code = r"""
import os
os.write(1, b"\xff\xfe\x00 a\x1b[31mred\x1b]0;title\x07 \x1b[2J\r\n b\x08\x7f\xc2\x9b31m <|im_end|> </verify> ``` ")
print("\u202e reversed \u200b <\uff5cUser\uff5c> <\x00|im_end|> <extra_0>", object())
"""
    check = scene.run(code)
    hidden = [char for char in check.output if char != "\n" and not char.isprintable()]
    scene.contained(not hidden, f"control characters {hidden!r}")
    spelled = [text for text in ("<|", "</verify>", "```", "<\uff5c", "<extra_0>") if text in check.output]
    scene.contained(not spelled, f"delimiters {spelled}")
    scene.contained("0x7" not in check.output, "an address")


@attack(control=False)
def recurse_for_ever(scene: Scene) -> None:
    code = "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): return f() + 1\nf()"
    stopped(scene, code, "error", "died", "memory", "timeout", cpu_seconds=1.0, memory_mb=64)


@attack(control=False)
def overflow_the_c_stack(scene: Scene) -> None:
    # Through C at every level, which a recursion limit does not bound where it can be raised.
    code = "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x): return max([x], key=f)\nf(1)"
    stopped(scene, code, "died", "memory", "error", cpu_seconds=5.0, wall_seconds=10.0)


@attack(control=False)
def loop_in_the_shown_value(scene: Scene) -> None:
    stopped(scene, "class A:\n    def __repr__(self):\n        while True: pass\nA()", "timeout")


@attack(control=False)
def loop_in_an_exceptions_text(scene: Scene) -> None:
    code = "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E"
    stopped(scene, code, "timeout")


# ---- protocol and state


@attack(control=False)
def end_the_process_as_if_all_were_well(scene: Scene) -> None:
    check = scene.run("import os\nprint('done', flush=True)\nos._exit(0)")
    scene.contained(check.status == "died", f"it ended as {check.status}")


@attack(control=False)
def forge_an_answer_and_end(scene: Scene) -> None:
    code = """
import os
for number in range(64):
    for message in (b"o\\0", b"X\\0\\0\\0\\0", b'{"status": "ok"}', b"x\\0"):
        try: os.write(number, message)
        except OSError: pass
os._exit(0)
"""
    check = scene.run(code)
    scene.contained(check.status in (*STATUSES, "unavailable"), check.status)


@attack(control=False)
def forge_an_answer_and_go_on(scene: Scene) -> None:
    # The forged answer ends the block early; what goes on is bounded all the same, and the state is its own only.
    code = "import os\nos.write(3, b'o\\0' * 100)\nwhile True: pass"
    checks = scene.run_blocks([code, "print(6 * 7)"], limits={"wall_seconds": 1.0})
    scene.contained(all(check.status in STATUSES for check in checks), str(checks))
    scene.contained(scene.elapsed < 6, f"it took {scene.elapsed:.1f} s")


@attack(control=False)
def read_the_next_block_oneself(scene: Scene) -> None:
    code = (
        "import os\nos.write(3, b'o\\0')\ndata = os.read(3, 65536)\nos.write(1, b'SAW ' + data)\nos.write(3, b'o\\0')"
    )
    checks = scene.run_blocks([code, "print(6 * 7)"], limits={"wall_seconds": 1.0})
    scene.contained(all(check.status in STATUSES for check in checks), str(checks))


@attack(control=False)
def leave_monkeypatches_for_the_next_run(scene: Scene) -> None:
    code = """
import builtins, sys, sympy, math, random
sympy.factor = sympy.solve = lambda *a, **k: "WRONG"
math.sqrt = lambda x: "WRONG"
builtins.print = builtins.len = lambda *a, **k: "WRONG"
sys.modules["numpy"] = sys.modules["math"]
sys.path[:] = []
sympy.Symbol.__add__ = lambda *a: "WRONG"
random.seed(99)
"""
    scene.run(code)
    check = scene.run(
        "import sympy, math, numpy\nx = sympy.Symbol('x')\n"
        "print(sympy.factor(x**2 - 1), math.sqrt(4), len('abc'), numpy.arange(3).sum(), x + 1)"
    )
    scene.contained(check.output == "(x - 1)*(x + 1) 2.0 3 3 x + 1", check.output)


@attack(control=False)
def raise_system_exit(scene: Scene) -> None:
    checks = scene.run_blocks(["raise SystemExit(3)", "exit()", "import sys\nsys.exit('bye')", "print(6 * 7)"])
    scene.contained([check.status for check in checks] == ["error", "ok", "error", "ok"], str(checks))
    scene.contained(checks[-1].output == "42", checks[-1].output)


@attack(control=False)
def write_bad_syntax(scene: Scene) -> None:
    check = scene.run("print(1\n)) def")
    scene.contained(check.status == "error" and "SyntaxError" in check.output, str(check))
    check = scene.run("x = '\0'")
    scene.contained(check.status == "error", str(check))


@attack(control=False)
def write_a_program_too_deep_to_parse(scene: Scene) -> None:
    check = scene.run("(" * 50_000 + ")" * 50_000, limits={"cpu_seconds": 5.0})
    scene.contained(check.status in ("error", "died", "memory"), str(check.status))


@attack(control=False)
def wait_for_input(scene: Scene) -> None:
    check = scene.run("input()")
    scene.contained(check.status == "error" and "EOFError" in check.output, str(check))

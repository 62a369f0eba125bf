"""What a command may see and use up, as arguments of bubblewrap.

How it is started, watched and ended is in `execute`.
"""

import os
import platform
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from agml_assets.agents.sandbox.system_calls import has_filter
from agml_assets.errors import UserError
from agml_assets.registry.agents import Limits

WORKSPACE = Path("/workspace")
"""Where a command sees the workspace."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_OF_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
_FOR_NETWORK = ("resolv.conf", "hosts", "nsswitch.conf", "ssl", "ca-certificates")
_GPU_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")

TMP_MB = 1024
"""Size of `/tmp` and of `/dev/shm`, each; both are memory."""

OPEN_FILES = 1024
"""Files that a process may have open."""

_NOBODY = 65534
_FIRST_USER, _USERS = 200_000, 60_000  # numbers that no account has, one for each sandbox


@dataclass(frozen=True)
class Confinement:
    """The world of a command.

    Attributes:
        workspace: Folder bound at `/workspace`, where the command starts.
        python: Interpreter; its installation is bound read-only.
        limits: What may be used up.
        read_only: Files and folders of the host by the path, relative to the workspace, at which they appear;
            nothing writes there.
        bound: Further files and folders, read-only, by the absolute path at which they appear.
        hidden: Files and folders that are empty in the sandbox.
        gpu: Number of the GPU that is seen; None means none.
        network: Whether there is one.
        writable: Whether the workspace is.
        user: Number of the user that commands run as, where we may choose; see `free_user`.
        image: Docker's image whose system and Python the command sees, see `container`; None means bubblewrap, and
            the system and the `python` of this machine.
    """

    workspace: Path
    python: Path
    limits: Limits = field(default_factory=Limits)
    read_only: Mapping[str, Path] = field(default_factory=dict)
    bound: Mapping[str, Path] = field(default_factory=dict)
    hidden: tuple[Path, ...] = ()
    gpu: int | None = None
    network: bool = False
    writable: bool = True
    user: int = _FIRST_USER
    image: str | None = None

    @property
    def interpreter(self) -> str:
        """The interpreter as commands call it."""
        return str(self.python) if self.image is None else "python"


def free_user(number: int) -> int:
    """Return a user for the sandbox with this number, so that limits of one user are those of one sandbox."""
    return _FIRST_USER + (os.getpid() * 7 + number) % _USERS


def require_bubblewrap() -> None:
    """Raise `UserError` where commands cannot be confined, saying what is missing."""
    if reason := why_not():
        raise UserError(reason)


@cache
def why_not() -> str:
    """Return why commands cannot be confined here; empty where they can."""
    if not has_filter():
        return f"Agents run in a sandbox made for 64-bit x86 and ARM, not for {platform.machine()}."
    needed = ["bwrap", *(["setpriv"] if os.geteuid() == 0 else [])]
    if missing := [name for name in needed if shutil.which(name) is None]:
        return (
            f"Agents run in a sandbox that needs {' and '.join(missing)}, not found here. Install bubblewrap and "
            "util-linux (Debian: apt-get install bubblewrap util-linux), or use Docker: --sandbox docker."
        )
    command = ["bwrap", *_start(None), *_system(), "--proc", "/proc", "--", "/usr/bin/true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode == 0:
        return ""
    return (
        f"Agents run in a sandbox, and bubblewrap cannot make one here: {done.stderr.strip()} Let the kernel give "
        "user namespaces to users (sysctl kernel.unprivileged_userns_clone=1, "
        "kernel.apparmor_restrict_unprivileged_userns=0), or use Docker: --sandbox docker."
    )


def arguments(confinement: Confinement, env: Mapping[str, str], accounts: int, calls: int) -> list[str]:
    """Return bubblewrap's arguments for a confinement.

    Args:
        confinement: What may be seen.
        env: Variables beside those that all commands have.
        accounts: Handle of a file to appear as `/etc/passwd`, see `accounts_of`.
        calls: Handle of a file with the filter of calls to the kernel, see `system_calls`.
    """
    one = confinement
    place = ["--bind" if one.writable else "--ro-bind", str(one.workspace), str(WORKSPACE)]
    found = [*_start(one), *_system(), *_etc(one.network), "--proc", "/proc", "--dev", "/dev", *_gpu(one.gpu)]
    for folder in ("/tmp", "/dev/shm"):  # noqa: S108
        found += ["--size", str(TMP_MB << 20), "--perms", "1777", "--tmpfs", folder]
    # After them: an interpreter may be installed below /tmp.
    found += [*_interpreter(one.python), *place]
    for relative, path in sorted(one.read_only.items()):
        found += ["--ro-bind", str(path), str(WORKSPACE / relative)]
    for target, path in sorted(one.bound.items()):
        found += [*_parents(Path(target)), "--ro-bind", str(path), target]
    for path in (*_project(), *one.hidden):
        if path.is_dir():
            found += ["--tmpfs", str(path), "--remount-ro", str(path)]
        elif path.exists():
            found += ["--ro-bind", "/dev/null", str(path)]
    found += ["--clearenv"]
    for name, value in (_environment(one) | dict(env)).items():
        found += ["--setenv", name, value]
    found += ["--perms", "0644", "--ro-bind-data", str(accounts), "/etc/passwd", "--remount-ro", "/"]
    found += ["--remount-ro", "/dev", "--seccomp", str(calls)]
    return [*found, "--chdir", str(WORKSPACE)]


def within(confinement: Confinement, command: list[str]) -> list[str]:
    """Return what bubblewrap runs: the command, as a user without rights and with limits."""
    return [*_unprivileged(confinement), *_limited(confinement), *command]


def accounts_of(confinement: Confinement) -> str:
    """Return the content of `/etc/passwd` in the sandbox: the one user there is."""
    user = confinement.user if os.geteuid() == 0 else _NOBODY
    return f"agent:x:{user}:{user}::/tmp:/bin/sh\n"


def common_environment(gpu: int | None) -> dict[str, str]:
    """Return the variables that all commands have, wherever they run."""
    return {
        "HOME": "/tmp",  # noqa: S108
        "TMPDIR": "/tmp",  # noqa: S108
        "LANG": "C.UTF-8",
        "USER": "agent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "CUDA_VISIBLE_DEVICES": "" if gpu is None else str(gpu),
    }


def _start(one: Confinement | None) -> list[str]:
    found = ["--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    found += ["--unshare-cgroup-try"]
    if one is None or not one.network:
        found.append("--unshare-net")
    if os.geteuid() == 0:
        # No user namespace: the user below is one of the host's, without any right. These are given up by setpriv.
        return found + [word for name in ("SETUID", "SETGID", "SETPCAP") for word in ("--cap-add", f"CAP_{name}")]
    return [
        *found,
        "--unshare-user",
        "--disable-userns",
        "--uid",
        str(_NOBODY),
        "--gid",
        str(_NOBODY),
        "--cap-drop",
        "ALL",
    ]


def _unprivileged(one: Confinement) -> list[str]:
    if os.geteuid() != 0:
        return []
    user = str(one.user)
    found = ["/usr/bin/setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs"]
    return [*found, "--bounding-set=-all", "--inh-caps=-all", "--"]


def _limited(one: Confinement) -> list[str]:
    limits = one.limits
    found = ["/usr/bin/prlimit", f"--fsize={limits.file_mb << 20}", f"--nproc={limits.processes}", "--core=0"]
    if one.gpu is None:  # CUDA reserves far more addresses than it uses
        found.append(f"--as={limits.memory_mb << 20}")
    return [*found, f"--nofile={OPEN_FILES}", "--"]


def _system() -> list[str]:
    found: list[str] = []
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            found += ["--symlink", str(path.readlink()), name]
        elif path.exists():
            found += ["--ro-bind", name, name]
    return found


def _etc(network: bool) -> list[str]:
    found: list[str] = ["--perms", "0755", "--dir", "/etc"]
    for name in (*_OF_ETC, *(_FOR_NETWORK if network else ())):
        if Path("/etc", name).exists():
            found += ["--ro-bind", f"/etc/{name}", f"/etc/{name}"]
    return found


def _interpreter(python: Path) -> list[str]:
    """Bind the installation of an interpreter, and that which its virtual environment stands on."""
    folders = prefixes(python)
    found: list[str] = []
    for folder in folders:
        if not any(folder.is_relative_to(name) for name in _SYSTEM):
            found += [*_parents(folder), "--ro-bind", str(folder), str(folder)]
    return found


def _parents(path: Path) -> list[str]:
    """Make the folders above a path passable; bubblewrap's own are for root alone."""
    above = [parent for parent in reversed(path.parents) if str(parent) != "/"]
    return [word for parent in above for word in ("--perms", "0755", "--dir", str(parent))]


@cache
def prefixes(python: Path) -> tuple[Path, ...]:
    """Return the folders of an interpreter's installation.

    Raises:
        UserError: It cannot be run.
    """
    script = "import sys; print(sys.prefix); print(sys.base_prefix); print(sys.exec_prefix)"
    try:
        done = subprocess.run([str(python), "-I", "-c", script], capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(
            f"{python} cannot be run as a Python interpreter: {error}. Name another: --python."
        ) from None
    return tuple(dict.fromkeys(Path(line).resolve() for line in done.stdout.splitlines() if line))


def _project() -> list[Path]:
    """Return where this package lies in an installation: what it draws and generates would give answers away."""
    package = Path(sysconfig.get_paths()["purelib"]) / "agml_assets"
    return [package] if package.is_dir() else []


def _gpu(gpu: int | None) -> list[str]:
    if gpu is None:
        return []
    names = [*_GPU_DEVICES, f"nvidia{gpu}"]
    return [
        word
        for name in names
        if Path("/dev", name).exists()
        for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    ]


def _environment(one: Confinement) -> dict[str, str]:
    return {"PATH": f"{one.python.parent}:/usr/local/bin:/usr/bin:/bin", **common_environment(one.gpu)}

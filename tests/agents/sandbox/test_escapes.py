"""What an agent may try to get out, or to get at what it must not see. Each is really tried, and fails."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agml_assets.agents.sandbox import execute
from agml_assets.agents.sandbox.paths import (
    MOST_DEEP,
    PathRefusedError,
    read_bytes,
    remove_tree,
    walk,
    write_bytes,
)

ROOT = Path(__file__).parents[3]


def test_a_command_works_in_its_workspace_and_sees_public_data(sandbox):
    done = sandbox.run("cat data/labels.csv && mkdir -p a && echo hello > a/b.txt && pwd && id -u")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines()[:3] == ["id,label", "1,cat", "/workspace"]
    assert done.stdout.decode().splitlines()[3] != "0"
    assert read_bytes(sandbox.workspace, "a/b.txt", 100) == b"hello\n"


def test_an_absolute_path_of_the_host_leads_nowhere(sandbox):
    for path in ("private/answers.csv", "toy_evil/secret.txt", "public/labels.csv"):
        assert sandbox.run(["cat", str(sandbox.folder / path)]).returncode != 0
    assert sandbox.run(["ls", str(sandbox.folder)]).returncode != 0


@pytest.mark.parametrize(
    "path", ["../private/answers.csv", "../toy_evil/secret.txt", "data/../../private/answers.csv"]
)
def test_dots_lead_nowhere(sandbox, path):
    assert sandbox.run(["cat", path]).returncode != 0
    with pytest.raises(PathRefusedError):
        read_bytes(sandbox.workspace, path, 1000)


@pytest.mark.parametrize("target", ["/etc/passwd", "private", "toy_evil/secret.txt"])
def test_the_harness_follows_no_link_that_an_agent_made(sandbox, target):
    target = target if target.startswith("/") else str(sandbox.folder / target)
    assert sandbox.run(["ln", "-s", target, "submission.csv"]).returncode == 0
    assert (sandbox.workspace / "submission.csv").exists()  # followed by who does not look
    for path in ("submission.csv", "submission.csv/answers.csv"):
        with pytest.raises(PathRefusedError):
            read_bytes(sandbox.workspace, path, 1_000_000)
        with pytest.raises(PathRefusedError):
            write_bytes(sandbox.workspace, path, b"overwritten")
    assert {one.path for one in walk(sandbox.workspace)} <= {"submission.csv", "data", "data/labels.csv"}
    assert "the-answer" in (sandbox.folder / "private/answers.csv").read_text()
    assert (sandbox.folder / "toy_evil/secret.txt").read_text() == "of another workspace"


def test_a_link_in_the_way_of_public_data_is_not_followed_by_the_mount(sandbox):
    sandbox.run("true")
    outside = sandbox.folder / "outside"
    outside.mkdir(mode=0o777)
    outside.chmod(0o777)
    (sandbox.workspace / "data/labels.csv").unlink()
    (sandbox.workspace / "data").rmdir()
    (sandbox.workspace / "data").symlink_to(outside)
    if sandbox.confinement.user != 200_001:
        os.lchown(sandbox.workspace / "data", sandbox.confinement.user, sandbox.confinement.user)
    assert sandbox.run(["cat", "data/labels.csv"]).stdout.startswith(b"id,label")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "attempt",
    [
        "echo x > data/labels.csv",
        "echo x > ./data/labels.csv",
        "echo x > data//labels.csv",
        "echo x > /workspace/data/../data/labels.csv",
        "echo x >> data/labels.csv",
        "chmod 666 data/labels.csv && echo x > data/labels.csv",
        "rm -f data/labels.csv && echo x > data/labels.csv",
        "mv data/labels.csv y",
        "ln data/labels.csv hard && echo x > hard",
        "ln -s data/labels.csv soft && echo x > soft",
        "mount -o remount,rw data/labels.csv; echo x > data/labels.csv",
        "umount data/labels.csv; echo x > data/labels.csv",
    ],
)
def test_a_read_only_file_stays_as_it_is_however_it_is_spelled(sandbox, attempt):
    assert sandbox.run(attempt).returncode != 0
    assert (sandbox.folder / "public/labels.csv").read_text() == "id,label\n1,cat\n"
    assert sandbox.run(["cat", "data/labels.csv"]).stdout == b"id,label\n1,cat\n"


def test_moving_its_folder_away_changes_nothing_for_the_next_command(sandbox):
    sandbox.run("mv data elsewhere; mkdir -p data; echo forged > data/labels.csv")
    assert sandbox.run(["cat", "data/labels.csv"]).stdout == b"id,label\n1,cat\n"
    assert (sandbox.folder / "public/labels.csv").read_text() == "id,label\n1,cat\n"


def test_the_environment_holds_no_key(sandbox):
    assert os.environ["OPENAI_API_KEY"] == "sk-planted"
    seen = sandbox.run("env; cat /proc/self/environ; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; true").stdout
    assert b"PATH=" in seen
    assert b"sk-planted" not in seen
    assert b"private" not in seen


def test_files_of_the_system_and_of_users_are_not_there(sandbox):
    for path in ("/etc/shadow", "/etc/hostname", "/etc/ssh", "/root/.bashrc", "/home", "/var", "/sys", str(ROOT)):
        assert sandbox.run(f"cat {path}/* {path} 2>/dev/null | head -c 1 | grep -q .").returncode != 0, path
    assert sandbox.run(["cat", "/etc/passwd"]).stdout.count(b"\n") == 1
    for path in ("/usr/made", "/etc/made", "/proc/sys/kernel/hostname", "/made"):
        assert sandbox.run(f"echo x > {path}").returncode != 0, path


def test_it_has_no_rights_and_gets_none(sandbox):
    status = sandbox.run("grep -E '^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/self/status").stdout.decode()
    assert dict(line.split() for line in status.splitlines()) == {
        **{f"Cap{name}:": "0" * 16 for name in ("Prm", "Eff", "Bnd", "Amb")},
        "NoNewPrivs:": "1",
    }
    assert sandbox.run("su -c id; chroot / id; mknod disk b 8 0").returncode != 0
    assert not (sandbox.workspace / "disk").exists()


def test_there_is_no_network(sandbox):
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: heard.append(server.accept()), daemon=True).start()
        port = server.getsockname()[1]
        script = (
            "import socket\n"
            f"for place in ('127.0.0.1', '10.0.0.1', 'localhost'):\n"
            f"    try: socket.create_connection((place, {port}), 2); print('reached', place)\n"
            "    except OSError as error: print('no')\n"
            "try: print('reached', socket.gethostbyname('example.org'))\n"
            "except OSError: print('no')\n"
        )
        assert sandbox.run(["/usr/bin/python3", "-c", script]).stdout.split() == [b"no"] * 4
        assert heard == []
        socket.create_connection(("127.0.0.1", port)).close()  # from out here it is heard
        time.sleep(0.2)
        assert len(heard) == 1


def test_it_does_not_reach_abstract_sockets_of_the_host(sandbox):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0agml-test-socket")
        server.listen()
        script = "import socket; socket.socket(socket.AF_UNIX).connect('\\0agml-test-socket')"
        done = sandbox.run(["/usr/bin/python3", "-c", script])
        assert b"ConnectionRefusedError" in done.stderr
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("\0agml-test-socket")


def test_a_fork_bomb_ends_with_its_command(sandbox):
    began = time.monotonic()
    done = sandbox.run("bomb() { bomb | bomb & }; bomb; sleep 60", timeout_s=3)
    assert done.stopped == "time"
    assert time.monotonic() - began < 15
    assert sandbox.run("echo alive").stdout == b"alive\n"
    assert _running("bomb") == []


def test_one_process_cannot_take_more_memory_than_allowed(sandbox):
    done = sandbox.run(["/usr/bin/python3", "-c", "x = bytearray(2 << 30); print(len(x))"])
    assert done.returncode != 0
    assert b"MemoryError" in done.stderr or done.stopped == "memory"


def test_many_processes_together_cannot_either(sandbox):
    each = "x = bytearray(200 << 20); import time; time.sleep(15)"
    done = sandbox.run(f"for i in 1 2 3 4 5 6; do /usr/bin/python3 -c '{each}' & done; wait")
    assert done.stopped == "memory"
    assert b"512 MB of memory" in done.stderr
    assert _running("bytearray(200 << 20)") == []


def test_endless_output_is_cut_and_ends(sandbox):
    done = sandbox.run("yes | tr y z", timeout_s=2)
    assert done.stopped == "time"
    assert len(done.stdout) < 80_000
    assert b"bytes left out" in done.stdout


def test_nothing_is_left_in_the_background(sandbox):
    name = f"sleep 98{os.getpid()}"
    done = sandbox.run(f"(setsid {name} &); nohup {name} & ( ( {name} ) & ) ; disown -a; echo done")
    assert done.stdout == b"done\n"
    assert done.seconds < 5
    assert _running(name) == []


def test_the_harness_killed_leaves_nothing(sandbox):
    name = f"sleep 97{os.getpid()}"
    script = (
        "import sys; from pathlib import Path\n"
        "from agml_assets.agents.sandbox.confinement import Confinement\n"
        "from agml_assets.agents.sandbox.execute import run_confined\n"
        f"box = Confinement(Path({str(sandbox.workspace)!r}), Path('/usr/bin/python3'))\n"
        f"run_confined(['/bin/sh', '-c', '{name} & {name}; :'], box)\n"
    )
    if sandbox.confinement.user != 200_001:
        pytest.skip("the kernel's part does not depend on who we are")
    harness = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    try:
        deadline = time.monotonic() + 30
        while not _running(name) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _running(name)
    finally:
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    deadline = time.monotonic() + 10
    while _running(name) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _running(name) == []


def test_processes_of_the_host_are_neither_seen_nor_hit(sandbox):
    victim = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    try:
        done = sandbox.run(f"kill -9 {victim.pid}; kill -9 -1; ls -d /proc/[0-9]* | wc -l")
        assert int(done.stdout.split()[-1]) < 10 if done.stdout else True
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_neither_workspace_nor_memory_disks_can_be_filled(sandbox):
    done = sandbox.run("for i in $(seq 40); do head -c 10000000 /dev/zero > f$i; sleep 0.1; done")
    assert done.stopped == "disk"
    done = sandbox.run(
        "head -c 3000000000 /dev/zero > /dev/shm/x; rm -f /dev/shm/x; echo x > big; truncate -s 1T big"
    )
    assert done.returncode != 0


def python(code: str) -> list[str]:
    return ["/usr/bin/python3", "-c", code]


DEEP = "import os\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')\nimport time; time.sleep(3)"


def test_folders_within_folders_without_end_are_stopped_and_can_be_removed(sandbox):
    assert sandbox.run(python(DEEP)).stopped == "disk"
    assert max(one.path.count("/") for one in walk(sandbox.workspace)) == MOST_DEEP
    remove_tree(sandbox.workspace / "d")
    assert not (sandbox.workspace / "d").exists()


def test_links_without_end_are_stopped(sandbox, monkeypatch):
    monkeypatch.setattr(execute, "_MOST_ENTRIES", 5_000)
    make = "import os, time\nfor i in range(10000): os.symlink('x' * 50, f'l{i}')\ntime.sleep(10)"
    assert sandbox.run(python(make)).stopped == "disk"


def test_a_folder_that_nobody_may_read_hides_nothing(sandbox):
    hide = (
        "mkdir h; chmod 300 h; for i in $(seq 8); do head -c 10000000 /dev/zero > h/f$i; done; sleep 5; echo held"
    )
    done = sandbox.run(hide)
    assert (done.stopped, done.stdout) == ("disk", b"")


def test_a_removed_file_that_is_still_open_counts_as_disk(sandbox):
    code = (
        "import os, time\nheld = []\n"
        "for i in range(10):\n"
        "    f = open('f', 'wb'); os.unlink('f'); f.write(bytes(10_000_000)); f.flush(); held.append(f)\n"
        "time.sleep(6); print('held')"
    )
    done = sandbox.run(python(code))
    assert (done.stopped, done.stdout) == ("disk", b"")


def test_memory_that_belongs_to_no_process_counts_or_is_denied(sandbox):
    nameless = "import os\nfor i in range(60): os.write(os.memfd_create('x'), bytes(15_000_000))\nprint('held')"
    done = sandbox.run(python(nameless))
    assert b"PermissionError" in done.stderr
    on_disks = "for d in /tmp /dev/shm; do for i in $(seq 20); do head -c 19000000 /dev/zero > $d/f$i; done; done"
    done = sandbox.run(f"{on_disks}; sleep 5; echo held")
    assert (done.stopped, done.stdout) == ("memory", b"")


@pytest.mark.parametrize(
    "command",
    [
        "unshare -Ur true",
        "unshare -Urm mount -t tmpfs none /tmp",
        "unshare -n true",
        "mount -t tmpfs none /tmp",
        "echo x > /dev/made",
        "mkdir /dev/made",
    ],
)
def test_no_command_gets_rights_in_a_world_of_its_own(sandbox, command):
    done = sandbox.run(command)
    assert done.returncode != 0, done.stdout


def test_threads_and_processes_begin_in_spite_of_the_filter(sandbox):
    code = (
        "import subprocess, threading, multiprocessing as m\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "print(subprocess.run(['echo', 'process'], capture_output=True, text=True).stdout)\n"
        "with m.Pool(2) as pool: print(sum(pool.map(abs, [-1, -2])))"
    )
    done = sandbox.run(python(code))
    assert done.stdout.split() == [b"thread", b"process", b"3"], done.stderr


def test_a_file_larger_than_allowed_cannot_be_written(sandbox):
    sandbox.run("head -c 30000000 /dev/zero > large")
    assert (sandbox.workspace / "large").stat().st_size <= 20 << 20


@pytest.mark.parametrize(
    "make", ["mkfifo submission.csv", "ln -s /dev/zero submission.csv", "mkdir submission.csv"]
)
def test_what_is_no_plain_file_is_no_submission_and_blocks_nobody(sandbox, make):
    assert sandbox.run(make).returncode == 0
    began = time.monotonic()
    with pytest.raises(PathRefusedError):
        read_bytes(sandbox.workspace, "submission.csv", 1000)
    assert time.monotonic() - began < 1


def test_a_file_too_large_to_be_read_is_refused(sandbox):
    sandbox.run("truncate -s 10M submission.csv")
    with pytest.raises(PathRefusedError, match="larger than"):
        read_bytes(sandbox.workspace, "submission.csv", 1_000_000)


def _running(text: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and "pytest" not in line and "bwrap" not in line and str(os.getpid()) != folder.name:
            found.append(line)
    return [line for line in found if "run_confined" not in line]

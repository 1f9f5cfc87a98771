"""Hosts of the tests' own: each a real sshd among its own processes, mounts, name and network, on a bridge we are on.

They share the disk with us, so a job's files can be written and read here. A host ends with all that runs on it, its
mounts and its end of the network, when its first process does.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.live.processes import DEADLINE_S, until, why_no_namespaces

USER, CHATTY = f"hxa{os.getpid()}", f"hxb{os.getpid()}"  # two runs at once must not meet
NOISE = "Welcome to the machine\nlast login: yesterday\n{not json}\n"
_CONFIG = """
Port 22
ListenAddress 0.0.0.0
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
LogLevel ERROR
Subsystem sftp internal-sftp
Banner {folder}/banner
"""
ROOT = Path(__file__).parents[2]
# The first process of the host, which sees the project wherever it lies.
# What is written to /run, /tmp and /dev/shm there is not written to ours.
_INIT = """
mount --make-rprivate /; exec 9<{root}; for own in /run /tmp /dev/shm; do mount -t tmpfs tmpfs $own; done
[ -e {root} ] || {{ mkdir -p {root}; mount --no-canonicalize --bind /proc/self/fd/9 {root}; }}; exec 9<&-
mkdir -p /run/sshd; hostname {name}
printf "{user} ALL=(ALL) NOPASSWD: ALL\\nroot ALL=(ALL) ALL\\n" > {folder}/sudoers; chmod 440 {folder}/sudoers
mount --bind {folder}/sudoers /etc/sudoers
while ! ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
ip link set lo up; ip addr add {address}/24 dev eth0; ip link set eth0 up
exec /usr/sbin/sshd -D -e -f {folder}/sshd_config
"""


def why_not() -> str | None:
    """Why there can be no such hosts here; null: there can."""
    missing = [
        name for name in ("sshd", "ssh", "ip", "unshare", "nsenter", "sudo", "useradd") if not shutil.which(name)
    ]
    if missing:
        return f"needs {', '.join(missing)} (make test installs them, as root)"
    return why_no_namespaces()


class Network:
    """A bridge, the hosts on it, the users they know, and a client that trusts their key."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="harness-hosts-", dir="/srv"))
        self.folder.chmod(0o755)
        self.number = os.getpid() % 250
        self.bridge = f"hxb{os.getpid() % 100000}"
        self.hosts: dict[str, Host] = {}
        self.log = self.folder / "ssh.log"
        self.bin = self.folder / "bin"

    def open(self) -> None:
        self._make_keys()
        for user, shell in ((USER, "/bin/sh"), (CHATTY, "/bin/bash")):
            home = self.folder / user
            _run("useradd", "--no-log-init", "-M", "-d", home, "-s", shell, "-p", "*", user)
            home.mkdir(mode=0o700)
            shutil.chown(home, user)
        # bash reads it for every command that sshd runs
        (self.folder / CHATTY / ".bashrc").write_text(f"printf %s {shlex.quote(NOISE)}; echo grumble >&2\n")
        _run("ip", "link", "add", self.bridge, "type", "bridge")
        _run("ip", "addr", "add", f"10.213.{self.number}.1/24", "dev", self.bridge)
        _run("ip", "link", "set", self.bridge, "up")

    def _make_keys(self) -> None:
        for name in ("host_key", "key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name)
        shutil.copy(self.folder / "key.pub", self.folder / "authorized_keys")
        (self.folder / "banner").write_text("*** authorised use only ***\n")
        (self.folder / "sshd_config").write_text(_CONFIG.format(folder=self.folder))
        self.bin.mkdir()
        # The user's own configuration, which ssh looks for in the password file's home and not in $HOME.
        log = f"${{HX_LOG:+-v -E {self.log}}}"
        wrapper = f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/config {log} "$@"\n'
        (self.bin / "ssh").write_text(wrapper)
        (self.bin / "ssh").chmod(0o755)

    def add(self, name: str) -> Host:
        host = Host(self, name, f"10.213.{self.number}.{10 + len(self.hosts)}")
        self.hosts[name] = host
        key = (self.folder / "host_key.pub").read_text()
        (self.folder / "known").write_text("".join(f"{one.address} {key}" for one in self.hosts.values()))
        entries = [
            f"Host {one.name}\n HostName {one.address}\n IdentityFile {self.folder}/key\n"
            f" UserKnownHostsFile {self.folder}/known\n StrictHostKeyChecking yes\n IdentitiesOnly yes\n"
            for one in self.hosts.values()
        ]
        (self.folder / "config").write_text("".join(entries))
        host.start()
        return host

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONUNBUFFERED", "RANK")}
        return {
            **kept,
            "HX_LOG": "yes",
            # A host's own programs are mounted there; what is reached by a prefix keeps our PATH.
            "PATH": f"{self.bin}:/usr/local/bin:{os.environ['PATH']}",
            "HARNESS_CASES": str(self.folder / "cases"),
        }

    def count_connections(self) -> int:
        """By ssh's own account, since the last time."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        self.log.unlink(missing_ok=True)
        return text.count("Authenticated to ")

    def close(self) -> None:
        for host in self.hosts.values():
            host.end()
        subprocess.run(["ip", "link", "del", self.bridge], check=False, capture_output=True)
        for user in (USER, CHATTY):
            subprocess.run(["userdel", user], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Host:
    def __init__(self, network: Network, name: str, address: str) -> None:
        self.network, self.name, self.address = network, name, address
        self.link = f"hx{address.rpartition('.')[2]}p{os.getpid() % 100000}"
        self._process: subprocess.Popen[bytes] | None = None
        self.init = self._jobs = 0

    def start(self) -> None:
        script = _INIT.format(name=self.name, folder=self.network.folder, address=self.address, user=USER, root=ROOT)
        command = ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (self.network.folder / f"{self.name}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self.init = int(until(lambda: children.read_text().split(), f"{self.name} has begun")[0])
        _run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(self.init))
        _run("ip", "link", "set", self.link, "master", self.network.bridge, "up")
        until(self._answers, f"sshd of {self.name}")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.address, 22), 0.5) as connection:
            return connection.recv(4) == b"SSH-"
        return False

    def inside(self, *words: object, **options: object) -> subprocess.CompletedProcess[str]:
        """As root, without the network."""
        return _run("nsenter", "-t", str(self.init), "-a", *words, **options)

    def start_job(self, *words: object, user: str = "root", **variables: str) -> int:
        """Its pid over there. It is told where to say that it is ready, by a file of that name."""
        self._jobs += 1
        folder = self.network.folder / f"{self.name}-{self._jobs}"
        folder.mkdir()
        shutil.chown(folder, user)
        ready, log = folder / "ready", folder / "train.log"
        pairs = [f"{name}={value}" for name, value in {**variables, "ZOO_READY": str(ready)}.items()]
        command = shlex.join(["env", "-u", "PYTHONUNBUFFERED", *pairs, *map(str, words)])
        script = f"cd {folder}; {command} > {log} 2>&1 < /dev/null & echo $!"
        switch = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user != "root" else []
        pid = int(self.inside("setsid", *switch, "sh", "-c", script, stderr=subprocess.DEVNULL).stdout)
        until(lambda: ready.exists() or not self._lives(pid), f"{words} is ready")
        assert ready.exists(), log.read_text()
        return pid

    def _lives(self, pid: int) -> bool:
        return Path(f"/proc/{self.init}/root/proc/{pid}").exists()

    def end_job(self, pid: int) -> None:
        self.inside("kill", "-9", str(pid))

    def list_commands(self) -> list[str]:
        """The command lines of all that runs there."""
        text = self.inside("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\000' ' '", check=False).stdout
        return text.splitlines()

    def cut(self) -> None:
        _run("ip", "link", "set", self.link, "down")

    def mend(self) -> None:
        _run("ip", "link", "set", self.link, "up")

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _run(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "check": True, "timeout": DEADLINE_S, **options}
    return subprocess.run([str(word) for word in words], text=True, **options)  # type: ignore[call-overload]


@contextlib.contextmanager
def network() -> Iterator[Network]:
    made = Network()
    try:
        made.open()
        yield made
    finally:
        made.close()

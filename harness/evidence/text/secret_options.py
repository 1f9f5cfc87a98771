"""Short options of known programs that a password follows: `curl -u`, `mysql -p`, `docker login -p`. Exactly these.

`-p` is a port, a profile or a number of processes everywhere else, and a directory after `--pwd`; such words stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

HINTS = ("curl", "sql", "mariadb", "login", "sshpass", "mongo", "redis-cli", "ldap", "plink", "pscp", "psftp", "putty",
         "ipmitool")  # fmt: skip
_MOST_BEFORE = 200  # characters between a program and its option, so that a long text costs no more than its length
_BETWEEN_WORDS = re.compile(r"""["'],\s{0,3}["']""")  # of a list that Python has printed
_COMMAND_ENDS = re.compile(r"[|;&\n()`\"'\[\],]")


class _Tool(NamedTuple):
    """`apart`: the secret may be a word of its own, `joined`: it may stand in the option's. `after`: a word between."""

    options: frozenset[str]
    apart: bool = True
    joined: bool = True
    after: str = ""
    is_first: bool = False  # nothing but other options stands between: what follows is somebody else's command
    is_pair: bool = False  # USER:PASSWORD, of which the user stays


def _name(tool: _Tool, *programs: str) -> dict[str, _Tool]:
    return dict.fromkeys(programs, tool)


_P = frozenset({"-p"})
_TOOLS = {
    # curl(1): -u, --user <user:password>; -U, --proxy-user.
    **_name(_Tool(frozenset({"-u", "--user", "-U", "--proxy-user"}), is_pair=True), "curl"),
    # mysql(1): "there should be no space between --password= or -p and the password". `-p x` asks, and x is a database.
    **_name(
        _Tool(_P, apart=False),
        *("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlcheck", "mysqlshow", "mariadb", "mariadb-dump"),
    ),
    **_name(_Tool(_P, after="login"), "docker", "podman", "nerdctl", "buildah", "skopeo", "helm", "oras", "az"),
    **_name(_Tool(_P, is_first=True), "sshpass"),
    **_name(_Tool(_P), "mongo", "mongosh", "mongodump", "mongorestore"),
    **_name(_Tool(frozenset({"-a"}), joined=False), "redis-cli"),
    **_name(_Tool(frozenset({"-w"})), "ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldapwhoami"),
    **_name(_Tool(frozenset({"-pw"}), joined=False), "plink", "pscp", "psftp", "putty"),
    **_name(_Tool(frozenset({"-P"})), "sqlcmd", "ipmitool"),
}


def split_before(text: str, end: int) -> list[str]:
    """The words of a command in a text, as far as they stand before `end`."""
    before = _BETWEEN_WORDS.sub(" ", text[max(0, end - _MOST_BEFORE) : end])
    return _COMMAND_ENDS.split(before)[-1].split()


def find_secret(words: Sequence[str], option: str, joined: bool, value: str) -> str:
    """What of `value` is a password: all, what is behind a user's name, or nothing. `words`: before the option."""
    for index, word in enumerate(words):
        tool = _TOOLS.get(word.rpartition("/")[2])
        if tool is not None and _takes(tool, words[index + 1 :], option, joined):
            return value.partition(":")[2] if tool.is_pair else value
    return ""


def _takes(tool: _Tool, between: Sequence[str], option: str, joined: bool) -> bool:
    if option not in tool.options or not (tool.joined if joined else tool.apart):
        return False
    if tool.is_first and not all(word.startswith("-") for word in between):
        return False
    return not tool.after or tool.after in between

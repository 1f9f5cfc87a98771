"""Where this interpreter finds installed packages. Run by harness with the target's interpreter, with -I -S.

With -S no .pth file and no sitecustomize is run, and `site` when imported does nothing; but then an interpreter before
3.14 does not know that it is a venv's. So pyvenv.cfg is read here, as site.venv() does. Prints one JSON line.
"""

import json
import os
import site
import sys
import sysconfig

STDLIB = os.path.dirname(os.__file__)  # sysconfig knows it too, but reads its whole database for that


def read_venv():
    """(prefix, whether it sees the packages of the interpreter it was made from); null prefix: not a venv."""
    folder = os.path.dirname(os.path.abspath(sys.executable))
    for prefix in (folder, os.path.dirname(folder)):
        try:
            with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8", errors="replace") as file:
                pairs = dict(line.lower().replace(" ", "").strip().partition("=")[::2] for line in file)
        except OSError:
            continue
        return prefix, pairs.get("include-system-site-packages") == "true"
    return None, True


def list_venv_sites(prefix):
    if os.name == "nt":
        return [os.path.join(prefix, "Lib", "site-packages")]
    version = os.path.basename(STDLIB)  # python3.13t too
    folders = dict.fromkeys([getattr(sys, "platlibdir", "lib"), "lib"])
    return [os.path.join(prefix, folder, version, "site-packages") for folder in folders]


def list_user_site():
    """Only where site.py would have used it; -I has switched it off for this run."""
    if os.environ.get("PYTHONNOUSERSITE"):
        return []
    try:
        return [site.getusersitepackages()]
    except Exception:
        return []  # no home directory


def describe():
    venv, sees_base = read_venv()
    sites = list_venv_sites(venv) if venv else []
    if sees_base:
        sites += list_user_site() + site.getsitepackages([sys.prefix])
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "platform": sysconfig.get_platform(),
        "executable": sys.executable,
        "prefix": venv or sys.prefix,
        "base_prefix": sys.base_prefix,
        "stdlib": STDLIB,
        "sites": [entry for entry in dict.fromkeys(map(os.path.abspath, path + sites)) if os.path.isdir(entry)],
    }


print(json.dumps(describe()))

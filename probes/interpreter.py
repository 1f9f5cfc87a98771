"""Which interpreter is this: version, implementation, platform. Run by harness with the target's interpreter.

Imports nothing but the standard library and changes nothing; prints one JSON line.
"""

import json
import sys
import sysconfig


def describe():
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "implementation": sys.implementation.name,
        "platform": sysconfig.get_platform(),
        "executable": sys.executable,
        "prefix": sys.prefix,
    }


print(json.dumps(describe()))

"""Near-miss: the NumPy 1.x banner is only a warning; the run dies later of its own ValueError.
numpy warns when old code survives the import; the uncaught exception is about something else."""

import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "train_step",
    "headline": ["ValueError"],
}
CONTROL = {"kind": "clean", "exit": 0}

BANNER = """
A module that was compiled using NumPy 1.x cannot be run in
NumPy 2.4.6 as it may crash. To support both 1.x and 2.x
versions of NumPy, modules must be compiled with NumPy 2.0.
Some module may need to rebuild instead e.g. with 'pybind11>=2.12'.

If you are a user of the module, the easiest solution will be to
downgrade to 'numpy<2' or try to upgrade the affected module.
We expect that some modules will need time to support NumPy 2.

"""


def train_step(learning_rate):
    if learning_rate < 0:
        raise ValueError("learning rate must not be negative")
    print("step 1 loss 0.71")


sys.stderr.write(BANNER)
train_step(5e-5 if "--control" in sys.argv else -1.0)

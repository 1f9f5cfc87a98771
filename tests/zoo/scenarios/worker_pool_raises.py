"""A function that a multiprocessing pool runs raises in a worker; the parent raises the same exception again, in map().
The parent ends, of an exception that nothing caught; the line is the one in the worker, which was sent along."""

import multiprocessing
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "cut_tile",
    "headline": ["ValueError: tile 2 is empty", "cut_tile"],
}
CONTROL = {"kind": "clean", "exit": 0}


def cut_tile(number):
    if number == 2 and "--control" not in sys.argv:
        raise ValueError(f"tile {number} is empty")
    return number


if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(pool.map(cut_tile, range(4)))

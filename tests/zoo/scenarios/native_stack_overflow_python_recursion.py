"""A Python function recurses through sum() and map() with the recursion limit raised.
Up to 3.11 each level takes C stack and only the limit stops it; from 3.12 on C levels have a limit of their own."""

import sys

EXPECT = {
    "kind": "stack-overflow",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "count_leaves",
    "component": "interpreter",
    "component_function": None,
    "headline": ["count_leaves"],
}
CONTROL = {"kind": "clean", "exit": 0}
VERSIONS = ["3.9", "3.10", "3.11"]


def count_leaves(node):
    return sum(map(count_leaves, node)) if node else 1


sys.setrecursionlimit(10**8)
tree = [[], [[], []]]
if "--control" not in sys.argv:
    tree.append(tree)
print("leaves", count_leaves(tree))

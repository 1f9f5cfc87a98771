"""A WebAssembly module traps 2000 times, in four ways; wasmtime's own handlers turn each into an exception.
A trap is a fault that the runtime expects: it steps over it and raises wasmtime.Trap, and the program ends with 0."""

import wasmtime

BARE = {"exit": 0}
NEEDS = ["wasmtime"]
MODULE = """
(module
  (memory 1)
  (func (export "unreachable") unreachable)
  (func (export "read_outside") (drop (i32.load (i32.const 0x7fffffff))))
  (func (export "divide") (drop (i32.div_s (i32.const 1) (i32.const 0))))
  (func $descend (export "descend") (call $descend))
)
"""


def count_traps(function, store, times):
    trapped = 0
    for _ in range(times):
        try:
            function(store)
        except wasmtime.Trap:
            trapped += 1
    return trapped


store = wasmtime.Store()
instance = wasmtime.Instance(store, wasmtime.Module(store.engine, MODULE), [])
for name in ("unreachable", "read_outside", "divide", "descend"):
    print(name, count_traps(instance.exports(store)[name], store, 500))

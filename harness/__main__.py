"""`python -m harness`: the same as the `harness` command."""

from harness.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main())

"""Shared by the zoo's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

# pytest explains the asserts of tests only, unless it is told of others before they are imported.
pytest.register_assert_rewrite("tests.zoo.judging", "tests.zoo.hang_judging")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zoo-libraries")

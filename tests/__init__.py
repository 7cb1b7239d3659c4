"""Tests; failed assertions of their helpers are explained as those of test modules are."""

import pytest

pytest.register_assert_rewrite("tests.support", "tests.assurance", "tests.system")

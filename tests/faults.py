"""What keeps a process from writing: permissions, which root ignores, and a limit for files."""

from __future__ import annotations

import ctypes
import os
import sys

import pytest

__all__ = ["heed_permissions", "skip_if_root_ignores_permissions"]

_PR_CAPBSET_DROP = 24
_CAPABILITIES = (1, 2, 3)  # to override permissions to write, to read, and those of other owners


def heed_permissions() -> None:
    """Take from root, in a process that starts, the rights to ignore permissions of files."""
    if os.geteuid() == 0:
        for capability in _CAPABILITIES:
            ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def skip_if_root_ignores_permissions() -> None:
    """Skip a test that needs permissions where nothing heeds them."""
    if os.name == "nt":
        pytest.skip("permissions of folders are another thing on Windows")
    if os.geteuid() == 0 and sys.platform != "linux":
        pytest.skip("root ignores permissions")

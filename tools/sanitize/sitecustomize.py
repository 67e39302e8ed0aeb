"""Python imports this at start-up: it loads the core from DROLEARN_CORE, not the installed one."""

from __future__ import annotations

import importlib.util
import os
import sys


class Finder:
    """The first finder, also before that of editable installations."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "drolearn._core":
            return None
        return importlib.util.spec_from_file_location(name, os.environ["DROLEARN_CORE"])


sys.meta_path.insert(0, Finder)

"""Print what pip-audit found; exit with 1 if a version has a known vulnerability.

python tools/audit.py found.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

path = Path(sys.argv[1])
text = path.read_text(encoding="utf-8") if path.exists() else ""
packages = json.loads(text)["dependencies"] if text else []
audited = [package for package in packages if "vulns" in package]
found = [(package, each) for package in audited for each in package["vulns"]]
for package, each in found:
    fixed = ", ".join(each["fix_versions"]) or "no version yet"
    print(f"{package['name']} {package['version']}: {each['id']}, fixed in {fixed}")
if not audited:
    print("Skipped: no service with known vulnerabilities answered.")
else:
    print(f"{len(audited)} of {len(packages)} versions looked up, {len(found)} vulnerabilities.")
sys.exit(1 if found else 0)

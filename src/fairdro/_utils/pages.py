"""Pages that hold all they need and run nothing but their own: a template, filled in."""

import base64
import hashlib
import re


def fill(template: str, **parts: str) -> str:
    """Return a page: ``{{name}}`` in the template is a part, which is HTML already.

    ``{{style}}`` and ``{{script}}`` are the hashes by which the page's security policy knows its own, and runs no other.
    """
    parts |= {tag: _fingerprint(template, tag) for tag in ("style", "script")}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _fingerprint(template: str, tag: str) -> str:
    content = template.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()

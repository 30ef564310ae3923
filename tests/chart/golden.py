"""What the chart renders, in files to be read: `python -m tests.chart.golden` writes them after a change.

`default.yaml` is whole; of each other set of values `SET.diff` tells what it takes away, adds and changes.  `rbac.yaml`
is what the operator and people may do.
"""

import difflib
from pathlib import Path
from typing import Any, Final

import yaml

from tests.chart.rendering import VALUE_SETS, render_set

GOLDEN: Final = Path(__file__).with_name("golden")
RBAC_SETS: Final = ("default", "namespaced", "page-namespaced")

Key = tuple[str, str, str]


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as they are."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def make_pages() -> dict[str, str]:
    """By the file's name."""
    whole = _pages_of("default")
    pages = {"default.yaml": "".join(whole.values()), "rbac.yaml": _make_rbac_page()}
    for name in VALUE_SETS:
        if name != "default":
            pages[f"{name}.diff"] = _make_diff(whole, _pages_of(name))
    return pages


def _make_diff(before: dict[Key, str], after: dict[Key, str]) -> str:
    lines = []
    for key in sorted(before.keys() | after.keys()):
        if key not in after:
            lines.append(f"without {' '.join(filter(None, key))}")
        elif key not in before:
            lines += after[key].splitlines()
        elif before[key] != after[key]:
            title = " ".join(filter(None, key))
            found = difflib.unified_diff(
                before[key].splitlines(), after[key].splitlines(), title, title, n=1, lineterm=""
            )
            lines += [line for line in found if not line.startswith("@@")]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _pages_of(name: str) -> dict[Key, str]:
    objects = {
        (thing["kind"], thing["metadata"].get("namespace", ""), thing["metadata"]["name"]): thing
        for thing in render_set(name)
    }
    return {key: f"---\n{yaml.dump(objects[key], Dumper=_Dumper, width=120)}" for key in sorted(objects)}


def _make_rbac_page() -> str:
    """Roles as lines `group/resource [names]: verbs`."""
    pages = {}
    for name in RBAC_SETS:
        roles = (thing for thing in render_set(name) if thing["kind"] in {"Role", "ClusterRole"})
        pages[name] = {
            " ".join([role["kind"], *filter(None, [role["metadata"].get("namespace")]), role["metadata"]["name"]]): [
                line for rule in role["rules"] for line in _lines_of(rule)
            ]
            for role in roles
        }
    return yaml.safe_dump(pages, width=160)


def _lines_of(rule: dict[str, Any]) -> list[str]:
    names = f" [{', '.join(rule['resourceNames'])}]" if "resourceNames" in rule else ""
    verbs = " ".join(rule["verbs"])
    return [
        f"{group or 'core'}/{resource}{names}: {verbs}" for group in rule["apiGroups"] for resource in rule["resources"]
    ]


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    pages = make_pages()
    for stale in {path.name for path in GOLDEN.iterdir()} - set(pages):
        (GOLDEN / stale).unlink()
    for name, page in pages.items():
        (GOLDEN / name).write_text(page, encoding="utf-8")
    print(f"wrote {GOLDEN}")


if __name__ == "__main__":
    main()

"""What a screen reader is given of a page, by the browser's own accessibility tree: what is wrong with it, in words.

The rules are those of WCAG 2.2 A and AA that a tree and a layout can tell: 1.1.1 and 4.1.2 (names and roles), 1.3.1
(tables, labels, headings), 2.4.1 and 2.4.2 (landmarks, title), 2.5.8 (size of what is clicked), 3.1.1 (language).
Contrast is tested beside it.
"""

NAMED = {
    "button", "checkbox", "combobox", "group", "heading", "image", "img", "link", "navigation", "option", "progressbar",
    "region", "textbox",
}  # fmt: skip
LANDMARKS = ("banner", "contentinfo", "main", "navigation")

LAYOUT = """
() => {
  const wrong = [];
  if (!document.documentElement.lang) wrong.push("the language of the page is not told");
  if (!document.title.trim()) wrong.push("the page has no title");
  for (const one of document.querySelectorAll("[tabindex]"))
    if (one.tabIndex > 0) wrong.push(`${one.outerHTML.slice(0, 60)} leaves the order of the page`);
  for (const name of ["aria-labelledby", "aria-describedby", "aria-controls"])
    for (const one of document.querySelectorAll(`[${name}]`))
      for (const id of one.getAttribute(name).split(/\\s+/))
        if (!document.getElementById(id)) wrong.push(`${name} names ${id}, which is not there`);
  for (const one of document.querySelectorAll("main select, main input, main button, nav a")) {
    const { width, height } = one.getBoundingClientRect();
    const target = one.closest("label")?.getBoundingClientRect() ?? { width: 0, height: 0 };
    const least = Math.min(Math.max(width, target.width), Math.max(height, target.height));
    if (width && least < 24) wrong.push(`${one.outerHTML.slice(0, 60)} is ${least} px small`);
  }
  for (const table of document.querySelectorAll("table"))
    for (const row of table.tBodies[0].rows)
      if (row.cells.length !== table.tHead.rows[0].cells.length) wrong.push(`a row of other columns: ${row.innerText}`);
  return wrong;
}
"""


def problems_of(page):
    """Return what is wrong with the page as it is shown now."""
    session = page.context.new_cdp_session(page)
    nodes = [one for one in session.send("Accessibility.getFullAXTree")["nodes"] if not one.get("ignored")]
    session.detach()
    roles = [_value(one, "role") for one in nodes]
    wrong = [f"a {role} without a name" for one, role in zip(nodes, roles, strict=True) if _lacks_name(one, role)]
    wrong += [f"{roles.count(role)} landmarks {role}" for role in LANDMARKS if roles.count(role) != 1]
    wrong += [f"the focus can reach a {role}" for one, role in zip(nodes, roles, strict=True) if _is_mute(one, role)]
    levels = [_property(one, "level") for one in nodes if _value(one, "role") == "heading"]
    wrong += [f"heading {b} after {a}" for a, b in zip([0, *levels], levels, strict=False) if b > a + 1]
    wrong += [f"{levels.count(1)} headings of level 1"] if levels.count(1) != 1 else []
    tables, heads = roles.count("table"), {"columnheader", "rowheader"} & set(roles)
    wrong += ["tables without headers"] if tables and "columnheader" not in heads else []
    return wrong + page.evaluate(LAYOUT)


def _value(node, field):
    return node.get(field, {}).get("value", "")


def _property(node, name):
    return next((one["value"].get("value") for one in node.get("properties", ()) if one["name"] == name), None)


def _lacks_name(node, role):
    return (
        role in NAMED
        and not str(_value(node, "name")).strip()
        and not (role in {"group", "option"} and not _focus(node))
    )


def _is_mute(node, role):
    """True for what the Tab key reaches and a screen reader has no word for."""
    return _focus(node) and role in {"generic", "none", ""}


def _focus(node):
    return bool(_property(node, "focusable"))

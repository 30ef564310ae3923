"""What `tools/structure.py` reads out of imports."""

from tools.structure import between_children, count_floors, find_circles

IMPORTS = {
    "house": frozenset({"house.loop"}),
    "house.loop": frozenset({"house.planner.plan", "house.port"}),
    "house.port": frozenset(),
    "house.planner": frozenset(),
    "house.planner.plan": frozenset({"house.planner.draft", "house.port"}),
    "house.planner.draft": frozenset({"house.planner.plan"}),
}


def test_a_package_is_seen_as_its_children():
    assert between_children(IMPORTS, "house") == {
        "__init__": {"loop"},
        "loop": {"planner", "port"},
        "port": set(),
        "planner": {"port"},
    }


def test_modules_that_import_each_other_are_a_circle_and_one_floor():
    inside = between_children(IMPORTS, "house.planner")
    assert find_circles(inside) == [("draft", "plan")]
    assert count_floors(inside) == 1
    assert count_floors(IMPORTS) == 4, "house, loop, the circle, port"


def test_a_circle_of_three_is_found_whole():
    arrows = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a"), "d": frozenset("a")}
    assert find_circles(arrows) == [("a", "b", "c")]
    assert count_floors(arrows) == 2
